"""The command line.

Exit codes: 0 done, 1 a gate failed, 2 could not be done (one sentence on stderr), 3 a bug in Sawtooth.
"""

from __future__ import annotations

import getpass
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sawtooth.app.commands.output import say
from sawtooth.ingest.errors import SawtoothError

COULD_NOT = 2  # Exit code of a command that could not do its work, such as with an unreadable file.
STOPPED = 130  # The status that shells report for a process that Ctrl-C ended.
NAME_SHOWN = 80  # Characters of a file's name in an error.
BUG = 3  # A separate code, because a gate must not read a crash as "regressed".
TRACEBACK = "SAWTOOTH_TRACEBACK"

# The module of each command, and its line in the list of commands. A module is imported only when its command is called,
# because `sawtooth --help` would otherwise take seconds to import pandas and SciPy.
COMMANDS = {
    "ingest": ("ingest", "ingest", "Ingest traces and telemetry; prints the run's id on the last line."),
    "report": ("report", "report", "Report a run's step time, what the GPU waits for, and what to change."),
    "compare": ("compare", "compare", "Compare two runs: faster, slower, no change or cannot tell, and why; gates for CI."),
    "gate": ("gate", "gate", "Compare a build with a stored baseline, for pull requests: gates, a summary and a comment."),
    "audit": (
        "audit",
        "audit",
        "Check a run against the tuning guides; for several runs, show the predicted and measured gain of each change.",
    ),
    "sweep": ("sweep", "sweep", "List runs by the setting in which they differ, and recommend one value."),
    "runs": ("runs", "runs_app", "List the runs, newest first; rm, tag, rename, open, prune."),
    "publish": ("publish", "publish", "Send a run's numbers and report to W&B, MLflow, Trackio or TensorBoard."),
    "export": ("bundle", "export", "Write runs with their sources into one .sawtooth file."),
    "import": ("bundle", "import_", "Import the runs of a .sawtooth file."),
    "map": ("map", "map_", "Summarise each rank of a large job where its trace is stored: a folder, S3, Google Cloud, Azure."),
    "reduce": (
        "reduce",
        "reduce",
        "Make a run from a job's summaries: which ranks delay it, why, and what it would gain; prints the run's id.",
    ),
    "run": ("run", "run", "Run a training command unchanged, and record why its GPU waits: sawtooth run train.py --epochs 3"),
    "try": ("try_", "try_", "Make the advised changes inside a training, and measure each: sawtooth try train.py --epochs 3"),
    "attach": ("attach", "attach", "Record a training that already runs, and print why its GPU waits: sawtooth attach PID"),
    "sample": ("sample", "sample", "Sample the GPUs beside a training, into a file or to a dashboard (--push)."),
    "calibrate": (
        "calibrate",
        "calibrate",
        "Measure this machine's GPU, to compute more accurate step times from telemetry; needs PyTorch.",
    ),
    "loader": ("loader", "loader", "Time a DataLoader alone, and print how many workers the GPU needs."),
    "collectives": (
        "dumps",
        "collectives",
        "Print which collective hangs and which ranks are missing, from dumps of NCCL's flight recorder.",
    ),
    "memory": ("dumps", "memory", "Print what uses the GPU's memory at its peak, from a snapshot of torch.cuda.memory."),
    "doctor": ("doctor", "doctor", "Check the data folder and the settings."),
    "serve": ("serve", "serve", "Serve the dashboard."),
    "mcp": ("mcp", "mcp", "Answer an agent by the Model Context Protocol, or write a skill for it (--skill DIR)."),
    "demo": ("serve", "demo", "Serve the dashboard with the bundled examples and open it in the browser."),
}
NAME_A_RUN = ("report", "audit", "sweep")  # Commands whose first word is a run or a file.
PARSED_BY_RECORDER = ("run", "try", "attach", "sample", "loader")
# The recorder parses the options of these commands itself, because it must run without typer.
THEIR_OWN_OPTIONS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


class LazyGroup(TyperGroup):
    """A command group that takes its help from COMMANDS, and imports only the called command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in NAME_A_RUN:
            importlib.import_module("sawtooth.app.commands.names").refuse_unknown(rest)
        if name == "compare" and "--to" in rest:
            rest = importlib.import_module("sawtooth.app.commands.names").each_with_option(rest, "--to")
        if name is None:
            return name, command, rest
        called, file = load_command(name), importlib.import_module("sawtooth.app.commands.settings_file")
        file.check(COMMANDS)
        if name not in PARSED_BY_RECORDER:
            ctx.default_map = {name: file.of_command(name, called)}
        return name, called, rest


def load_command(name: str) -> Any:
    """Return the command called ``name``, from its module."""
    module, attribute, _ = COMMANDS[name]
    entry = getattr(importlib.import_module(f"sawtooth.app.commands.{module}"), attribute)
    if not isinstance(entry, typer.Typer):
        function, entry = entry, typer.Typer(add_completion=False)
        own: dict[str, Any] = (
            {"context_settings": THEIR_OWN_OPTIONS, "add_help_option": False} if name in PARSED_BY_RECORDER else {}
        )
        entry.command(name, **own)(function)
    return typer.main.get_command(entry)


cli = typer.Typer(
    name="sawtooth",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_, _, _sentence) in COMMANDS.items():
    cli.command(_name, help=_sentence)(lambda: None)


def _version(requested: bool) -> None:
    if requested:
        from sawtooth.analysis.version import TOOL_VERSION

        say(TOOL_VERSION)
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Find out why a training run leaves its GPU waiting, what to change, and what the change gains."""


def main() -> None:
    """Run the command line.

    An error of the user's input or machine becomes one sentence and exit code 2. A bug becomes one sentence and exit code 3.
    """
    signal.signal(signal.SIGINT, _end_on_interrupt)
    try:
        cli()
    except SawtoothError as error:
        prefix = f"{error.file[:NAME_SHOWN]}: " if error.file else ""
        say(f"sawtooth: {prefix}{error}", err=True)
        for other in error.other_errors:
            say(f"Left out {other}", err=True)
        sys.exit(COULD_NOT)
    except MemoryError:
        say("sawtooth: There is not enough memory for this. Profile fewer steps, or use a machine with more.", err=True)
        sys.exit(COULD_NOT)
    except BrokenPipeError:  # `sawtooth report … | head` closes the pipe early.
        sys.stderr.close()
    except OSError as error:
        place = Path(str(error.filename)).name[:80] if error.filename else "The output or a temporary file"
        todo = f" Give {getpass.getuser()} access, or copy it." if isinstance(error, PermissionError) and error.filename else ""
        say(f"sawtooth: {place!r} cannot be read or written ({error.strerror}).{todo}", err=True)
        sys.exit(COULD_NOT)
    except Exception as error:
        say(f"sawtooth: {_bug(error)}", err=True)
        sys.exit(BUG)


def _end_on_interrupt(*_: object) -> None:
    """End cleanly on Ctrl-C: remove temporary folders and print no traceback."""
    say("\nStopped.", err=True)
    sys.exit(STOPPED)


def _bug(error: Exception) -> str:
    """Return the text about an unexpected error: its place in the code, and how to see the details."""
    if os.environ.get(TRACEBACK):
        return "".join(traceback.format_exception(error))
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"
    return f"This is a bug in Sawtooth ({place}); please report it. {TRACEBACK}=1 prints the details."


if __name__ == "__main__":
    main()
