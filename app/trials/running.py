"""Run the training once, until its step time is known, and pack the recording."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sawtooth.app.trials import endings, steps
from sawtooth.app.trials.endings import LONGEST, MIN_STEPS, How
from sawtooth.app.trials.output import names_taken_port
from sawtooth.app.trials.processes import Training, delayed_stop
from sawtooth.ingest.capture.command import settings as hook
from sawtooth.ingest.capture.command.launch import hooked_environment
from sawtooth.ingest.capture.command.parts import LOADED
from sawtooth.ingest.capture.command.progress import MarksTail
from sawtooth.ingest.capture.command.recorded_runs import runs_of
from sawtooth.ingest.capture.command.telemetry import start_sampler, write_session
from sawtooth.ingest.capture.packing import pack_runs
from sawtooth.ingest.capture.trials.changes import environment as variables
from sawtooth.ingest.capture.trials.changes import outermost
from sawtooth.ingest.capture.trials.notes import read_notes
from sawtooth.ingest.capture.trials.settings import NOTES, TRIAL, TrialSettings
from sawtooth.ingest.capture.trials.trackers import tracker_variables

LOOK_S = 0.2  # Time between two checks of a run.
HANGS_S = 60.0  # A run in which no step ends for this time hangs, unless its start or its steps are known to take long.
STARTS = 4.0  # The first step may take HANGS_S and this many times the base run's start.
COMPILES_S = 900.0  # Additional time if the change compiles.
LONG_STEPS = 20.0  # A pause of up to this many times the longest step so far may be an evaluation or a checkpoint.
LOG_TAIL = 4000  # Bytes at the end of the output in which the error message is searched.
MIB = 1 << 20
# A loader's worker passes tensors through a socket at TMPDIR/pymp-12345678/listener-12345678, whose path has at most 107 bytes.
LONGEST_TMPDIR, SHORT = 107 - len("/pymp-12345678/listener-12345678"), "/tmp"
BY_TRY = "`sawtooth try` started it, and ended it when its step time was known."
PROFILE_S = 30.0  # Time that the profile may take in addition to the time of the steps.
FIRST_STEP_S = 1800.0  # Longest start of the base run: loading a data set or compiling may take long.


def _never(step_times: Sequence[float]) -> bool:
    return False


@dataclass(frozen=True)
class RunRequest:
    """What to run: the command, its folder, changes and limits.

    ``work`` is the folder of the run's own files. With ``profiles``, a profile is recorded and the GPUs are sampled. ``enough``
    returns whether the step times (ms) so far suffice. ``start_s`` is the start time of the base run.
    """

    words: Sequence[str]
    command: Sequence[str]
    name: str
    folder: Path
    work: Path
    settings: TrialSettings
    seconds: float
    start_s: float | None = None
    profiles: bool = False
    enough: Callable[[Sequence[float]], bool] = _never
    settings_shown: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class Ran:
    """How a run ended, its bundle (None without steps), and the notes of its training processes.

    ``start_s`` is the time from the start to the first step, plus the excess time of slow first steps. ``why`` is what went
    wrong. ``left`` names processes, ports and GPU memory that were not freed, and ``files`` the existing files that the run
    would have changed. ``tail`` is the end of the output. ``is_loaded`` is False if no Python of the command loaded the hook.
    """

    how: How
    bundle: Path | None
    notes: list[Mapping[str, Any]]
    took_ms: list[float]
    start_s: float | None
    memory_mib: float
    seconds: float
    why: str = ""
    left: list[str] = field(default_factory=list)
    files: list[Mapping[str, str]] = field(default_factory=list)
    tail: str = ""
    is_loaded: bool = True

    @property
    def why_unmeasured(self) -> str:
        """Return why there is no step time, if there is none."""
        if self.why and (self.is_loaded or self.how != "hung"):
            return self.why
        return endings.why_not_measured(len(self.took_ms), self.tail, is_loaded=self.is_loaded)

    @property
    def port_is_taken(self) -> bool:
        """Whether the run failed because a port that it needs is in use."""
        return self.how == "failed" and names_taken_port(self.tail)


def run(order: RunRequest) -> Ran:
    """Run the command of ``order``; all its processes have ended when this returns, also after Ctrl-C."""
    with _temporary_folder(order.work) as temporary:
        return _run(order, temporary)


def _run(order: RunRequest, temporary: str) -> Ran:
    parts = order.work / "parts"
    for folder in (parts, order.work / "saves", order.work / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    sampler = start_sampler(parts, None, order.name)[0] if order.profiles else None
    log = order.work / "log.txt"
    began = time.monotonic()
    training = None
    try:
        with log.open("wb") as output, delayed_stop():
            process = subprocess.Popen(
                order.words,
                cwd=order.folder,
                env=_environment(order, parts, temporary),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            training = Training(process, parts)
        watch = _Watch(order, parts, process, training, began)
        how = watch.until_known()
    finally:
        messages = training.end() if training is not None else []
        if sampler is not None:
            write_session(sampler, parts)
    step_times, _ = steps.step_ms(MarksTail(parts, most=None).marks())
    tail = log.read_bytes()[-LOG_TAIL:].decode(errors="replace")
    has_steps = watch.start_s is not None
    code = process.returncode
    how, why = endings.outcome(how, code, tail, limit_s=watch.limit_s, has_steps=has_steps, compiles=_compiles(order))
    notes = _notes(parts)
    every = [read_notes(path) for path in parts.glob(f"{NOTES}-*.json")]
    files = [file for each in every for file in each["files"]]
    bundle = _pack(order, parts) if step_times else None
    start_s = watch.start_s + steps.compiling_s(step_times) if watch.start_s is not None else None
    took_s, loaded = time.monotonic() - began, (parts / LOADED).exists()
    return Ran(how, bundle, notes, step_times, start_s, watch.memory / MIB, took_s, why, messages, files, tail, loaded)


class _Watch:
    """The observation of a running training: its steps, its memory, and whether it hangs."""

    def __init__(
        self, order: RunRequest, parts: Path, process: subprocess.Popen[bytes], training: Training, began: float
    ) -> None:
        self._order, self._parts, self._process, self._training, self._began = order, parts, process, training, began
        self.start_s: float | None = None
        self.memory = 0
        self._count, self._newest = 0, began
        self._marks = MarksTail(parts, most=None)
        self._longest_s = 0.0
        self._unseen_since: float | None = None

    def until_known(self) -> How:
        """Wait until the step time is known or the run ends."""
        looks = 0
        while True:
            code = self._process.poll()
            if self._guarded():
                return "guarded"
            if code is not None:
                return "ended" if code == 0 else "failed"
            looks += 1
            if looks % 5 == 1:
                self.memory = max(self.memory, self._training.memory_bytes())
            step_times, loop_s = steps.step_ms(self._marks.marks())
            self._note(step_times)
            if self._is_known(step_times, loop_s):
                return "measured"
            if self._hangs():
                return "hung"
            time.sleep(LOOK_S)

    def _note(self, step_times: Sequence[float]) -> None:
        now = time.monotonic()
        if step_times and self.start_s is None:
            self.start_s = now - self._began - sum(step_times) / 1e3
        if len(step_times) != self._count:
            self._longest_s = max(self._longest_s, now - self._newest if self._count else 0.0)
            self._count, self._newest = len(step_times), now

    def _is_known(self, step_times: Sequence[float], loop_s: float) -> bool:
        """Return whether the steps suffice, or the time is over; ``loop_s`` includes evaluations."""
        if _compiles(self._order):  # the first steps compile and record CUDA graphs, and may be of usual length
            loop_s -= sum(step_times[: outermost.REPLAYED_AFTER]) / 1e3
            step_times = step_times[outermost.REPLAYED_AFTER :]
        trained_s = sum(step_times) / 1e3 - steps.compiling_s(step_times)
        seconds, enough = self._order.seconds, self._order.enough
        ranks = len(list(self._parts.glob("marks-*.jsonl")))
        if self._order.profiles and len(list(self._parts.glob("trace-*.json"))) < max(ranks, 1):
            seconds, enough = 2 * seconds + PROFILE_S, _never
        if (trained_s >= seconds and len(step_times) >= MIN_STEPS) or loop_s >= LONGEST * seconds:
            return True
        return trained_s >= min(steps.MIN_S, seconds / 2) and len(step_times) >= steps.MIN_STEPS and enough(step_times)

    @property
    def limit_s(self) -> float:
        """Time in s without the end of a step after which the run counts as hanging."""
        compiles = COMPILES_S if _compiles(self._order) else 0.0
        if self.start_s is not None:
            return max(HANGS_S + compiles, LONG_STEPS * self._longest_s)
        if self._order.start_s is not None:
            return HANGS_S + STARTS * self._order.start_s + compiles
        return FIRST_STEP_S

    def _hangs(self) -> bool:
        return time.monotonic() - self._newest > self.limit_s or self._is_unseen()

    def _is_unseen(self) -> bool:
        """Return whether a Python of the command has run for HANGS_S, and none has loaded the hook."""
        if (self._parts / LOADED).exists() or not self._training.runs_python():
            self._unseen_since = None
            return False
        now = time.monotonic()
        self._unseen_since = self._unseen_since or now
        return now - self._unseen_since > HANGS_S

    def _guarded(self) -> bool:
        return self._order.settings.guards and any(
            b'"how"' in path.read_bytes() for path in self._parts.glob(f"{NOTES}-*.json")
        )


def _compiles(order: RunRequest) -> bool:
    return not order.settings.changes.keys().isdisjoint((outermost.COMPILE, outermost.GRAPHS))


@contextlib.contextmanager
def _temporary_folder(work: Path) -> Iterator[str]:
    """Yield a folder for the run's temporary files, in ``work`` or, if that path is too long, in SHORT."""
    folder = str(work / "tmp")
    with contextlib.ExitStack() as stack:
        if len(os.fsencode(folder)) > LONGEST_TMPDIR and os.access(SHORT, os.W_OK):
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=SHORT, ignore_cleanup_errors=True))
        yield folder


def _environment(order: RunRequest, parts: Path, temporary: str) -> dict[str, str]:
    options = {
        hook.PROFILED_STEPS: 5 if order.profiles else 0,
        hook.AFTER_SECONDS: min(hook.DEFAULT_AFTER_S, order.seconds / 4),
        hook.EVERY: 0,
        hook.LOADER: 1,
        hook.STACKS: 0,
    }
    hooked = hooked_environment(parts, options)
    return {
        **hooked,
        **tracker_variables(order.work),
        **variables.variables(order.settings.changes, hooked),
        TRIAL: order.settings.variable(),
        "TMPDIR": temporary,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _notes(parts: Path) -> list[Mapping[str, Any]]:
    """Return the notes of all ranks; without ranks, the marks of the process with the most step marks."""
    marks = sorted(parts.glob("marks-*.jsonl"), key=lambda path: path.stat().st_size, reverse=True)
    ranked = [path for path in marks if path.stem.startswith("marks-rank")]
    names = [path.stem.removeprefix("marks-").partition(".")[0] for path in ranked or marks[:1]]
    return [read_notes(parts / f"{NOTES}-{name}.json") for name in names]


def _pack(order: RunRequest, parts: Path) -> Path | None:
    runs = runs_of(parts)
    if not runs:
        return None
    bundle = order.work / "run.sawtooth"
    command = [word.encode(errors="replace").decode() for word in order.command]
    description = {
        "name": order.name,
        "notes": f"Recorded by `sawtooth run {' '.join(command)}`.\n{BY_TRY}",
        "settings": dict(order.settings_shown),
        "tags": list(order.tags),
        "facts": runs[0].facts,
        "command": command,
    }
    pack_runs(bundle, [(description, runs[0].sources)])
    return bundle
