"""The command line. Exit codes: 0 done, 1 a gate failed, 2 could not be done (one sentence on stderr)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from analysis.version import TOOL_VERSION
from app.commands.bundle import export, import_
from app.commands.compare import compare
from app.commands.ingest import ingest, runs
from app.commands.report import report
from app.commands.sample import CONTEXT, sample
from app.commands.serve import demo, serve
from app.commands.sweep import sweep
from ingest.errors import SawtoothError

COULD_NOT = 2

cli = typer.Typer(
    name="sawtooth",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
cli.command()(ingest)
cli.command()(report)
cli.command()(compare)
cli.command()(sweep)
cli.command()(runs)
cli.command()(export)
cli.command("import")(import_)
cli.command(context_settings=CONTEXT, add_help_option=False)(sample)
cli.command()(serve)
cli.command()(demo)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(TOOL_VERSION)
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Why a training run leaves its GPU waiting, what to change, and what the change would bring."""


def main() -> None:
    """Run the command line; errors people can act on become one sentence and exit code 2."""
    try:
        cli()
    except SawtoothError as error:
        typer.echo(f"sawtooth: {error}", err=True)
        sys.exit(COULD_NOT)
    except MemoryError:
        typer.echo("sawtooth: There is not enough memory for this. Profile fewer steps, or use a machine with more.", err=True)
        sys.exit(COULD_NOT)
    except BrokenPipeError:  # `sawtooth report … | head`
        sys.stderr.close()
    except OSError as error:
        place = Path(str(error.filename)).name[:80] if error.filename else "The output or a temporary file"
        typer.echo(f"sawtooth: {place!r} cannot be read or written ({error.strerror}).", err=True)
        sys.exit(COULD_NOT)


if __name__ == "__main__":
    main()
