"""``sawtooth mcp``: serve an agent over standard input and output, or write its skill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.store.library import Library
from sawtooth.app.agent.skill import write_skill
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.server.start import require_mcp


def mcp(
    data: DataOption = None,
    skill: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the agent skill into DIR/sawtooth and end; DIR is for example .claude/skills."),
    ] = None,
) -> None:
    """Answer an agent over standard input and output, by the Model Context Protocol.

    `sawtooth serve --mcp` does the same over HTTP, at /mcp.
    """
    if skill is not None:
        say(str(write_skill(skill)))
        return
    require_mcp()
    from sawtooth.app.agent.ingest import from_paths
    from sawtooth.app.agent.server import mcp_server
    from sawtooth.app.agent.tools import Tools

    with Library(data_folder(data)) as library:
        tools = Tools(library)
        mcp_server(tools, from_paths(tools)).run()
