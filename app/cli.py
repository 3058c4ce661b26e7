"""The command line. Exit codes: 0 done, 1 a gate failed, 2 could not be done (one sentence on stderr), 3 a bug in Sawtooth."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.version import TOOL_VERSION
from sawtooth.app.commands.bundle import export, import_
from sawtooth.app.commands.compare import compare
from sawtooth.app.commands.ingest import ingest
from sawtooth.app.commands.report import report
from sawtooth.app.commands.run import run
from sawtooth.app.commands.runs import runs_app
from sawtooth.app.commands.sample import CONTEXT, sample
from sawtooth.app.commands.serve import demo, serve
from sawtooth.app.commands.sweep import sweep
from sawtooth.ingest.errors import SawtoothError

COULD_NOT = 2
STOPPED = 130  # as shells report a process that Ctrl-C ended
BUG = 3  # of its own: a gate must not read a crash as "regressed"
TRACEBACK = "SAWTOOTH_TRACEBACK"

cli = typer.Typer(
    name="sawtooth",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.command()(ingest)
cli.command()(report)
cli.command()(compare)
cli.command()(sweep)
cli.add_typer(runs_app, name="runs")
cli.command()(export)
cli.command("import")(import_)
cli.command(context_settings=CONTEXT, add_help_option=False)(run)
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
    """Run the command line; errors people can act on become one sentence and exit code 2, any other one sentence and exit code 3."""
    signal.signal(signal.SIGINT, _stopped)
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
    except Exception as error:
        typer.echo(f"sawtooth: {_bug(error)}", err=True)
        sys.exit(BUG)


def _stopped(*_: object) -> None:
    """End cleanly on Ctrl-C: temporary folders go, and no traceback stays."""
    typer.echo("\nStopped.", err=True)
    sys.exit(STOPPED)


def _bug(error: Exception) -> str:
    """Return what is said of an error that nobody expected: where it happened, and how to see all of it."""
    if os.environ.get(TRACEBACK):
        return "".join(traceback.format_exception(error))
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
    return f"This is a bug in Sawtooth ({where}); please report it. {TRACEBACK}=1 prints the details."


if __name__ == "__main__":
    main()
