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
from sawtooth.app.trials.endings import MAX_PROLONGATION, MIN_STEPS, Ending
from sawtooth.app.trials.output import names_taken_port
from sawtooth.app.trials.processes import Training, delayed_stop
from sawtooth.ingest.capture.command import settings as hook_settings
from sawtooth.ingest.capture.command.launch import hooked_environment
from sawtooth.ingest.capture.command.parts import LOADED
from sawtooth.ingest.capture.command.progress import MarksTail
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.telemetry import start_sampler, write_session
from sawtooth.ingest.capture.packing import pack_runs
from sawtooth.ingest.capture.trials.changes import environment as variables
from sawtooth.ingest.capture.trials.changes import outermost
from sawtooth.ingest.capture.trials.notes import read_notes
from sawtooth.ingest.capture.trials.settings import NOTES, TRIAL, TrialSettings
from sawtooth.ingest.capture.trials.trackers import tracker_variables

CHECK_INTERVAL_S = 0.2  # Time between two checks of a run.
MEMORY_INTERVAL = 5  # Checks between two readings of the memory, which are slow for large processes.
HANGS_S = 60.0  # A run hangs if no step ends for this time. A slow start and slow steps get more time.
MAX_START_FACTOR = 4.0  # The first step may take HANGS_S and this many times the base run's start.
COMPILES_S = 900.0  # Additional time if the change compiles.
MAX_PAUSE_STEPS = 20.0  # An evaluation or a checkpoint may take this many times the longest step.
LOG_TAIL_BYTES = 4000  # The error message is expected in these bytes at the end of the output.
MIB = 1 << 20
# A loader's worker passes tensors through a socket. Linux limits the path of a socket to 107 bytes.
MAX_TMPDIR_LENGTH = 107 - len("/pymp-12345678/listener-12345678")
SHORT_TMPDIR = "/tmp"
PROFILED_STEPS = 5  # As for `sawtooth run`.
PROFILE_S = 30.0  # Time that the profile may take in addition to the time of the steps.
MAX_FIRST_STEP_S = 1800.0  # Time limit of the base run's first step. Loading a data set or compiling may take long.


@dataclass(frozen=True)
class RunRequest:
    """The command of a run, its folder, changes and limits.

    ``words`` is the command to execute, and ``command`` the command as the user wrote it. ``work`` is the folder of the run's own
    files. With ``profiles``, a profile is recorded and the GPUs are sampled. ``enough`` returns whether the step times (ms) so far
    suffice. ``start_s`` is the time that the base run took to start.
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
    enough: Callable[[Sequence[float]], bool] = lambda step_times: False
    settings_shown: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class FinishedRun:
    """The ``ending`` of a run, its bundle (None without steps), and the notes of its training processes.

    ``start_s`` is the time from the start to the first step, plus the excess time of slow first steps. ``why`` says what went
    wrong. ``not_freed`` has a sentence about each process, port and GPU memory that was not freed. ``files`` are the existing files
    that the run would have changed. ``tail`` is the end of the output. ``is_loaded`` is False if no Python process of the command
    loaded the hook.
    """

    ending: Ending
    bundle: Path | None
    notes: list[Mapping[str, Any]]
    step_times_ms: list[float]
    start_s: float | None
    memory_mib: float
    seconds: float
    why: str = ""
    not_freed: list[str] = field(default_factory=list)
    files: list[Mapping[str, str]] = field(default_factory=list)
    tail: str = ""
    is_loaded: bool = True

    @property
    def why_unmeasured(self) -> str:
        """Why the run has no step time."""
        if self.why and (self.is_loaded or self.ending != "hung"):
            return self.why
        return endings.why_not_measured(len(self.step_times_ms), self.tail, is_loaded=self.is_loaded)

    @property
    def port_is_taken(self) -> bool:
        """Whether the run failed because a port that it needs is in use."""
        return self.ending == "failed" and names_taken_port(self.tail)


def run(request: RunRequest) -> FinishedRun:
    """Run the command of ``request``.

    The command's processes have ended when this returns, also after Ctrl-C.
    """
    with _temporary_folder(request.work) as temporary:
        return _run(request, temporary)


def _run(request: RunRequest, temporary: str) -> FinishedRun:
    parts = request.work / "parts"
    for folder in (parts, request.work / "saves", request.work / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    sampler = start_sampler(parts, None, request.name)[0] if request.profiles else None
    log = request.work / "log.txt"
    began = time.monotonic()
    training = None
    try:
        with log.open("wb") as output, delayed_stop():
            process = subprocess.Popen(
                request.words,
                cwd=request.folder,
                env=_environment(request, parts, temporary),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            training = Training(process, parts)
        watch = _Watch(request, parts, process, training, began)
        ending = watch.wait_for_ending()
    finally:
        messages = training.end() if training is not None else []
        if sampler is not None:
            write_session(sampler, parts)
    step_times, _ = steps.step_ms(MarksTail(parts, max_marks=None).marks())
    tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    has_steps = watch.start_s is not None
    code = process.returncode
    ending, why = endings.outcome(ending, code, tail, limit_s=watch.limit_s, has_steps=has_steps, compiles=_compiles(request))
    notes = _notes(parts)
    notes_of_all = [read_notes(path) for path in parts.glob(f"{NOTES}-*.json")]
    files = [file for run_notes in notes_of_all for file in run_notes["files"]]
    bundle = _pack(request, parts) if step_times else None
    start_s = watch.start_s + steps.compiling_s(step_times) if watch.start_s is not None else None
    took_s, loaded = time.monotonic() - began, (parts / LOADED).exists()
    return FinishedRun(
        ending, bundle, notes, step_times, start_s, watch.memory_bytes / MIB, took_s, why, messages, files, tail, loaded
    )


class _Watch:
    """The observation of a running training: its steps, its memory, and whether it hangs."""

    def __init__(
        self, request: RunRequest, parts: Path, process: subprocess.Popen[bytes], training: Training, began: float
    ) -> None:
        self._request, self._parts, self._process, self._training, self._began = request, parts, process, training, began
        self.start_s: float | None = None
        self.memory_bytes = 0
        self._count, self._newest_step_s = 0, began
        self._marks = MarksTail(parts, max_marks=None)
        self._longest_s = 0.0
        self._without_hook_since: float | None = None

    def wait_for_ending(self) -> Ending:
        """Wait until the step time is known or the run ends."""
        checks = 0
        while True:
            code = self._process.poll()
            if self._guarded():
                return "guarded"
            if code is not None:
                return "ended" if code == 0 else "failed"
            if checks % MEMORY_INTERVAL == 0:
                self.memory_bytes = max(self.memory_bytes, self._training.memory_bytes())
            checks += 1
            step_times, loop_s = steps.step_ms(self._marks.marks())
            self._note_steps(step_times)
            if self._is_known(step_times, loop_s):
                return "measured"
            if self._hangs():
                return "hung"
            time.sleep(CHECK_INTERVAL_S)

    def _note_steps(self, step_times: Sequence[float]) -> None:
        """Update the start time, the longest pause and the newest step by the step times (ms) so far."""
        now = time.monotonic()
        if step_times and self.start_s is None:
            self.start_s = now - self._began - sum(step_times) / 1e3
        if len(step_times) != self._count:
            self._longest_s = max(self._longest_s, now - self._newest_step_s if self._count else 0.0)
            self._count, self._newest_step_s = len(step_times), now

    def _is_known(self, step_times: Sequence[float], loop_s: float) -> bool:
        """Return whether the step times (ms) suffice or the time is over; ``loop_s`` includes evaluations."""
        if _compiles(self._request):  # The first steps compile and record CUDA graphs, even if they are short.
            loop_s -= sum(step_times[: outermost.REPLAYED_AFTER]) / 1e3
            step_times = step_times[outermost.REPLAYED_AFTER :]
        trained_s = sum(step_times) / 1e3 - steps.compiling_s(step_times)
        seconds, enough = self._request.seconds, self._request.enough
        ranks = len(list(self._parts.glob("marks-*.jsonl")))
        if self._request.profiles and len(list(self._parts.glob("trace-*.json"))) < max(ranks, 1):
            # Steps are slower while the profiler runs, so the run gets more time.
            seconds, enough = 2 * seconds + PROFILE_S, lambda times: False
        if (trained_s >= seconds and len(step_times) >= MIN_STEPS) or loop_s >= MAX_PROLONGATION * seconds:
            return True
        return trained_s >= min(steps.MIN_S, seconds / 2) and len(step_times) >= steps.MIN_STEPS and enough(step_times)

    @property
    def limit_s(self) -> float:
        """The time in s after which a run without a new step counts as hanging."""
        compiles = COMPILES_S if _compiles(self._request) else 0.0
        if self.start_s is not None:
            return max(HANGS_S + compiles, MAX_PAUSE_STEPS * self._longest_s)
        if self._request.start_s is not None:
            return HANGS_S + MAX_START_FACTOR * self._request.start_s + compiles
        return MAX_FIRST_STEP_S

    def _hangs(self) -> bool:
        return time.monotonic() - self._newest_step_s > self.limit_s or self._runs_without_hook()

    def _runs_without_hook(self) -> bool:
        """Return whether a Python process of the command has run for HANGS_S and none has loaded the hook."""
        if (self._parts / LOADED).exists() or not self._training.runs_python():
            self._without_hook_since = None
            return False
        now = time.monotonic()
        self._without_hook_since = self._without_hook_since or now
        return now - self._without_hook_since > HANGS_S

    def _guarded(self) -> bool:
        """Return whether the guard has refused to change an existing file; its note then has the key ``how``."""
        notes = self._parts.glob(f"{NOTES}-*.json")
        return self._request.settings.guards and any(b'"how"' in path.read_bytes() for path in notes)


def _compiles(request: RunRequest) -> bool:
    return not request.settings.changes.keys().isdisjoint((outermost.COMPILE, outermost.GRAPHS))


@contextlib.contextmanager
def _temporary_folder(work: Path) -> Iterator[str]:
    """Yield a folder for the run's temporary files, with a path that is short enough for sockets."""
    folder = str(work / "tmp")
    with contextlib.ExitStack() as stack:
        if len(os.fsencode(folder)) > MAX_TMPDIR_LENGTH and os.access(SHORT_TMPDIR, os.W_OK):
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=SHORT_TMPDIR, ignore_cleanup_errors=True))
        yield folder


def _environment(request: RunRequest, parts: Path, temporary: str) -> dict[str, str]:
    options = {
        hook_settings.PROFILED_STEPS: PROFILED_STEPS if request.profiles else 0,
        hook_settings.AFTER_SECONDS: min(hook_settings.DEFAULT_AFTER_S, request.seconds / 4),
        hook_settings.EVERY: 0,
        hook_settings.LOADER: 1,
        hook_settings.STACKS: 0,
    }
    hooked = hooked_environment(parts, options)
    return {
        **hooked,
        **tracker_variables(request.work),
        **variables.variables(request.settings.changes, hooked),
        TRIAL: request.settings.variable(),
        "TMPDIR": temporary,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _notes(parts: Path) -> list[Mapping[str, Any]]:
    """Return the notes of all ranks; without ranks, the notes of the process with the most step marks."""
    marks = sorted(parts.glob("marks-*.jsonl"), key=lambda path: path.stat().st_size, reverse=True)
    ranked = [path for path in marks if path.stem.startswith("marks-rank")]
    names = [path.stem.removeprefix("marks-").partition(".")[0] for path in ranked or marks[:1]]
    return [read_notes(parts / f"{NOTES}-{name}.json") for name in names]


def _pack(request: RunRequest, parts: Path) -> Path | None:
    runs = runs_to_pack(parts)
    if not runs:
        return None
    bundle = request.work / "run.sawtooth"
    command = [word.encode(errors="replace").decode() for word in request.command]
    description = {
        "name": request.name,
        "notes": f"Recorded by `sawtooth run {' '.join(command)}`.\n`sawtooth try` started this run, and ended it when the step time was known.",
        "settings": dict(request.settings_shown),
        "tags": list(request.tags),
        "facts": runs[0].facts,
        "command": command,
    }
    pack_runs(bundle, [(description, runs[0].sources)])
    return bundle
