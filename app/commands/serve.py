"""``sawtooth serve`` and ``sawtooth demo``: run the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sawtooth.app.server import process as server


def serve(
    port: Annotated[int, typer.Option(help="Port.")] = 8501,
    address: Annotated[str, typer.Option(help="Address to listen on. A token is required beyond this machine.")] = "127.0.0.1",
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    no_external: Annotated[
        bool, typer.Option("--no-external", help="Hide the only link that leaves this machine (Open in Perfetto).")
    ] = False,
    token: Annotated[str | None, typer.Option(help="Token that viewers need.")] = None,
) -> None:
    """Serve the dashboard."""
    server.serve(port=port, address=address, data=data, external=not no_external, token=token)


def demo(
    port: Annotated[int, typer.Option(help="Port.")] = 8501,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """Serve the dashboard with the bundled example and open it in the browser."""
    server.serve(port=port, data=data, demo=True, open_browser=open_browser)
