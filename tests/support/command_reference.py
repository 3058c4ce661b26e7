"""Write docs/commands.md from the commands: ``python -m tests.support.command_reference``.

Redirect the output: ``python -m tests.support.command_reference > docs/commands.md``.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from typing import Any

import click

from sawtooth.app.cli import COMMANDS, load_command
from sawtooth.app.commands.try_ import try_parser
from sawtooth.ingest.capture.attach.command import attach_parser
from sawtooth.ingest.capture.commands import run_parser
from sawtooth.ingest.capture.loader import loader_parser
from sawtooth.ingest.sampler.options import build_parser as sample_parser

# These commands parse their own options.
PARSERS = {"run": run_parser, "try": try_parser, "attach": attach_parser, "sample": sample_parser, "loader": loader_parser}
HEAD = """# Commands

Every command and option of `sawtooth`. This page is generated: `python -m tests.support.command_reference > docs/commands.md`.

Exit codes: 0 done, 1 a gate of `compare --fail-on` failed, 2 the command could not be carried out (one sentence says why), 3 an error in Sawtooth itself.
"""


def page() -> str:
    """Return the complete page as Markdown."""
    return "\n".join([HEAD, *(line for name in COMMANDS for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    yield f"## sawtooth {name}\n"
    if name in PARSERS:
        yield from _argparse(PARSERS[name]())
        return
    command = load_command(name)
    yield from _click(command, f"sawtooth {name}")
    for child in getattr(command, "commands", {}).values():
        yield f"### sawtooth {name} {child.name}\n"
        yield from _click(child, f"sawtooth {name} {child.name}")


def _click(command: Any, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"`{path} {usage}`\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            rows.append(record)
    yield from _table(rows)


def _argparse(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    yield f"`{usage}`\n"
    yield f"{parser.description or ''}\n"
    rows = []
    for action in parser._actions:
        if action.help and action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            value = action.metavar if isinstance(action.metavar, str) else "" if action.nargs == 0 else action.dest.upper()
            names = ", ".join(action.option_strings)
            rows.append((f"{names} {value}".strip(), action.help % {"default": action.default}))
    yield from _table(rows)


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield "| option | meaning |"
    yield "|---|---|"
    for name, meaning in rows:
        name = " ".join(name.split()).replace("|", "\\|")
        meaning = " ".join(meaning.split()).replace("|", "\\|")
        yield f"| `{name}` | {meaning} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
