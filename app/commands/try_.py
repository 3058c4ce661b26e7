"""``sawtooth try``: make the advised changes inside the training and measure each one."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import say
from sawtooth.app.commands.settings_file import set_parser_defaults
from sawtooth.app.printable import json_text
from sawtooth.app.trials import table
from sawtooth.app.trials.choosing import Candidate, candidates
from sawtooth.app.trials.folders import size_of_copy
from sawtooth.app.trials.processes import STOP_SIGNALS
from sawtooth.app.trials.running import FinishedRun
from sawtooth.app.trials.session import Options, TrialSession
from sawtooth.app.trials.trial import Trial
from sawtooth.ingest.capture import commands
from sawtooth.ingest.capture.command.interpreter import option_warnings
from sawtooth.ingest.children import why_not_started

NOTHING_TRIED, STOPPED_BY_SIGNAL = 2, 130  # Exit codes. Shells also use 130 for a program that Ctrl-C ended.
YES_ANSWERS = ("y", "yes")
MAX_NAMED_FILES = 5  # A message names at most this many files.
NO_TERMINAL = "There is no terminal to ask. Write --yes before the command to run all of this, or --plan to list it only."
WOULD_CHANGE = (
    "The training was ended before it changed existing files: {files}. Add --copy to run in copies of the working folder, "
    "or --allow-writes if these files may change."
)
OUTSIDE = "The training was ended before it changed existing files outside the working folder: {files}. Add --allow-writes if these files may change."
HAS_CHANGED = (
    "The training changed existing files in a way that Sawtooth could not stop: {files}. Nothing was tried. Add --copy to run in copies of "
    "the working folder, or --allow-writes if these files may change."
)
CHANGED_LATER = "A trial changed existing files, so no further trial was started: {files}."
NO_BASE = "The run without changes gave no step time, so nothing was tried. {why}"
NEW_FILES = "The runs made new files in the working folder: {files}. The next `sawtooth try` protects these files too. Remove them first, or add --copy."
STORED = "The result is stored in {path}."
NO_CANDIDATE = "Nothing can be tried from inside this training."


def try_parser() -> argparse.ArgumentParser:
    """Return the parser of `sawtooth try`; its own options come before the training command."""
    parser = argparse.ArgumentParser(
        prog="sawtooth try",
        allow_abbrev=False,  # Otherwise an option of the training, such as --n, could match a longer option of this command.
        description="Run a training with each advised change, which is made inside the process, and measure the gain of the change.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="maximum measuring time of each run, in seconds (default %(default)g)",
    )
    parser.add_argument("--plan", action="store_true", help="run the training once as it is, and only list the trials")
    parser.add_argument("--yes", action="store_true", help="run the trials without a confirmation")
    parser.add_argument("--allow-numerics", action="store_true", help="also try TF32, bf16 and a larger batch")
    parser.add_argument("--copy", action="store_true", help="run in copies of the working folder")
    parser.add_argument("--allow-writes", action="store_true", help="the runs may change existing files")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--data", type=Path, default=None, metavar="DIR", help="data folder that stores the runs")
    parser.add_argument(
        "-m", nargs=argparse.REMAINDER, dest="module", metavar="MODULE", help="run a module: -m rl.train --epochs 3"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="train.py --epochs 3, python -m …, torchrun …"
    )
    return parser


def try_(context: typer.Context) -> None:
    """Make the advised changes inside a training and measure each: `sawtooth try train.py --epochs 3`.

    `sawtooth try --help` lists the options.
    """
    parser = try_parser()
    set_parser_defaults(parser, "try")
    arguments = parser.parse_args(context.args)
    command = commands.command_in(parser, arguments)
    if arguments.seconds <= 0:
        parser.error("--seconds needs a number above 0")
    if not (arguments.yes or arguments.plan or sys.stdin.isatty()):
        _note(NO_TERMINAL)
        raise typer.Exit(NOTHING_TRIED)
    raise typer.Exit(_try(command, arguments))


def _note(text: str) -> None:
    say(f"sawtooth: {text}", err=True)


def _try(command: Sequence[str], arguments: argparse.Namespace) -> int:
    options = Options(arguments.seconds, arguments.copy, arguments.allow_writes, arguments.allow_numerics)
    stop = _StopSignal()
    with TrialSession(command, data_folder(arguments.data), options, _note) as session:
        code = NOTHING_TRIED
        try:
            code = _run_session(session, arguments)
        except (KeyboardInterrupt, Exception):
            if not stop.was_received:
                raise
            _note("Stopped. This is what is known:")
            code = STOPPED_BY_SIGNAL
        session.decide()
        session.trials = [trial for trial in session.trials if trial.status]
        session.remember()
        result = json_text(table.plain(session), 1)
        if files := session.new_files():
            further = f" and {len(files) - MAX_NAMED_FILES} more" if len(files) > MAX_NAMED_FILES else ""
            _note(NEW_FILES.format(files=", ".join(files[:MAX_NAMED_FILES]) + further))
        if session.bases:
            _note(STORED.format(path=session.store(result)))
        if arguments.json:
            say(result)
        else:
            for line in table.lines(session):
                say(line)
        return code


class _StopSignal:
    """A handler of stop signals, which sets ``was_received`` and ends the running trial.

    An interrupted library may raise another error instead. DuckDB raises RuntimeError.
    """

    def __init__(self) -> None:
        self.was_received = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.was_received = True
        raise KeyboardInterrupt


def _run_session(session: TrialSession, arguments: argparse.Namespace) -> int:
    """Run the base run, list the trials, and run them; return the exit code."""
    if shutil.which(session.words[0]) is None:
        _note(why_not_started(session.words[0]))
        return NOTHING_TRIED
    if ignored := option_warnings(session.words):
        _note(ignored[0])
        return NOTHING_TRIED
    if session.python is not None:
        _note(session.python)
    if arguments.copy:
        _note(f"Each run gets a copy of {Path.cwd()} ({fmt.bytes_(size_of_copy(Path.cwd()))}).")
    if (refused := _refusal(session, session.base(first=True), arguments)) is not None:
        _note(refused)
        return NOTHING_TRIED
    chosen = candidates(session.bases[0].result, session.bases[0].run.notes, numerics=arguments.allow_numerics)
    to_try = [candidate for candidate in chosen if not candidate.by_hand]
    by_hand = [Trial([candidate], status="by_hand", why=candidate.by_hand) for candidate in chosen if candidate.by_hand]
    session.trials += by_hand
    if not to_try:
        _note(NO_CANDIDATE)
        return NOTHING_TRIED
    for line in table.planned(to_try, session):
        _note(line)
    if arguments.plan:
        session.trials = [*(Trial([candidate], status="planned") for candidate in to_try), *by_hand]
        return 0
    if not arguments.yes and input("sawtooth: Run this? [y/N] ").strip().lower() not in YES_ANSWERS:
        return NOTHING_TRIED
    session.trials = []
    try:
        _run_trials(session, to_try, arguments)
    finally:
        session.trials += by_hand
    return 0


def _run_trials(session: TrialSession, to_try: Sequence[Candidate], arguments: argparse.Namespace) -> None:
    for candidate in to_try:
        trial = session.try_out([candidate])
        if trial.measured is not None:
            session.base()
        if not arguments.allow_writes and (files := session.changed_files()):
            _note(CHANGED_LATER.format(files=", ".join(files[:MAX_NAMED_FILES])))
            return
    session.decide()
    kept_changes = session.kept_changes()
    if len(kept_changes) > 1:
        session.try_out(kept_changes)
        session.base()


def _refusal(session: TrialSession, finished: FinishedRun, arguments: argparse.Namespace) -> str | None:
    """Return why no trial may follow the base run; None if trials may follow."""
    files = list(dict.fromkeys(file["path"] for file in finished.files))
    named = ", ".join(files[:MAX_NAMED_FILES])
    if finished.ending == "guarded":
        inside = all(Path(file).is_relative_to(Path.cwd().resolve()) for file in files)
        return (WOULD_CHANGE if inside and not arguments.copy else OUTSIDE).format(files=named)
    if not arguments.allow_writes and (changed := session.changed_files()):
        return HAS_CHANGED.format(files=", ".join(changed[:MAX_NAMED_FILES]))
    if not session.bases or finished.ending not in ("measured", "ended"):
        return NO_BASE.format(why=finished.why_unmeasured)
    return None
