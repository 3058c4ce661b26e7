"""Record a training that already runs, for a limited time, and leave it running.

If the training's Python (3.14 or newer) accepts code from another process, the hook of `sawtooth run` marks the steps and profiles a few
of them. Otherwise only the process and its GPU are sampled. Standard library only, like the whole recorder.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sawtooth.ingest.capture.attach import readings, stacks
from sawtooth.ingest.capture.attach.injection import Injection
from sawtooth.ingest.capture.attach.remote import RemoteExecution
from sawtooth.ingest.capture.attach.targets import AttachError, Process, find_trainings
from sawtooth.ingest.capture.command import launch, settings, telemetry
from sawtooth.ingest.capture.command.parts import (
    PARTS_LEFT,
    abandoned_folders,
    errors_in,
    keep_unpacked,
    output_file,
    parts_folder,
)
from sawtooth.ingest.capture.command.recorded_runs import RecordedRun, loop_extent, run_messages, runs_to_pack
from sawtooth.ingest.capture.command.without_optimizer import timed_profile
from sawtooth.ingest.loop.command import default_run_name
from sawtooth.installation import recorder_version

POLL_PERIOD_S = 0.2  # Pause between two checks of the processes and the written profiles.
MIN_PROFILED_S = 30.0  # A recording with a profile takes at least this long, so that it covers time around the profile.
MAX_WAIT_S = 600.0  # A profile is awaited at most this long. Even a loop with steps of 20 s is profiled in less time.
MAX_OTHER_RANKS_S = 30.0  # Profiles of the other ranks are awaited this long after the first one. Usually they take seconds.
UNPROFILED_S = 60.0  # Length of a recording without a hook or without a profile.
RECORDED = "Recorded by `sawtooth attach {pid}` for {seconds:.0f} s."
RECORDING = "recording {which}, {until}. Ctrl-C ends the recording early and writes the file; the training continues."
RECORDED_ALREADY = "Process {pid} was started by `sawtooth run`, which already records it. Wait until that recording ends."
NO_HOOK = "No step marks and no profile: {why}. The GPU and the process are sampled from outside instead. `sawtooth run` records both from a training's start."
NO_STEP = (
    "No training loop was seen while attached, because no PyTorch optimizer stepped, and no backward pass, module call or loader batch was repeated. "
    "A loop inside a CUDA graph that was captured earlier cannot be seen."
)
PROFILED = "So a few seconds of the program were profiled. The answer covers only this time and has no steps."
NO_PROFILE = (
    "No profile: {steps:,} steps were seen in {seconds:.3g} s. The profile begins after {after:g} s and at least 20 steady steps. Attach for longer "
    "(--seconds), or use a smaller --after."
)
ENDED = "The training ended while it was recorded."


@dataclass(frozen=True)
class AttachOptions:
    """Options of a recording.

    If ``seconds`` is None, the recording lasts until the profile is taken. It lasts UNPROFILED_S if no profile is expected.
    """

    name: str = ""
    steps: int = launch.PROFILED_STEPS  # Number of steps to profile. With 0, no profile is taken.
    after_s: float = settings.DEFAULT_AFTER_S
    seconds: float | None = None
    sample: bool = True
    time_loader: bool = True
    stacks: bool = False


@dataclass
class AttachResult(launch.LaunchResult):
    """The result of a recording. ``stays`` lists what remains loaded in each hooked process, by PID."""

    stays: dict[int, list[str]] = field(default_factory=dict)


def attach(
    pid: int,
    bundle: Path | None,
    options: AttachOptions,
    *,
    remote: RemoteExecution | None = None,
    stop: threading.Event | None = None,
) -> AttachResult:
    """Record the training of process ``pid`` into ``bundle``.

    ``pid`` may also be the training's launcher. Without ``bundle``, the file is named after the training. Setting ``stop`` ends the
    recording early. Raises AttachError if nothing can be recorded.
    """
    targets = find_trainings(pid)
    recorded_pid = next((target.pid for target in targets if settings.FOLDER in target.environment), None)
    if recorded_pid is not None:
        raise AttachError(RECORDED_ALREADY.format(pid=recorded_pid))
    name = options.name or default_run_name(targets[0].command)
    default = f"{name.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.sawtooth"
    bundle, message = output_file(bundle or Path(default), default)
    if message:
        _say(message)
    for folder in abandoned_folders():
        _say(PARTS_LEFT.format(folder=folder))
    remote, stop = remote or RemoteExecution(), stop or threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(parts_folder())
        except OSError as error:
            raise AttachError(launch.NO_ROOM.format(why=error.strerror)) from error
        stack.enter_context(_set_by_signals(stop))
        recording = _Recording(targets, folder, options, remote)
        recording.begin(name)
        try:
            recording.watch(stop)
        finally:
            launched = recording.end()
        try:
            _write(recording, bundle, name, RECORDED.format(pid=pid, seconds=recording.seconds), launched)
        except Exception as error:  # The recorded parts stay on the disk.
            launched.missing.append(keep_unpacked(error, recording.folder, bundle))
        return launched


class _Recording:
    """One recording of ``targets``: the sampler, the injected hook, the stack reader and their results."""

    def __init__(self, targets: Sequence[Process], folder: Path, options: AttachOptions, remote: RemoteExecution) -> None:
        self.targets, self.folder, self.options = targets, folder, options
        self._remote = remote
        self.injection: Injection | None = None
        self._sampler: object = None
        self._stacks: stacks.StackReader | None = None
        self._missing: list[str] = []
        self._at_start: list[str] = []
        self._began_ns = time.monotonic_ns()
        self._first_readings = {target.pid: readings.read(target.pid, self._began_ns) for target in targets}
        self._last_readings = dict(self._first_readings)
        self.seconds = 0.0
        self._profiled_s: float | None = None  # The first profile was written this many seconds after the start.

    def begin(self, name: str) -> None:
        """Start the sampler and inject the hook; print what cannot be recorded, and why."""
        if self.options.sample:
            follow = [word for target in self.targets for word in ("--follow", str(target.pid))]
            self._sampler, self._at_start = telemetry.start_sampler(self.folder, None, name, *follow)
        injection = Injection(self.targets, self.folder, self._environment(), self._remote)
        obstacles = filter(None, map(self._remote.why_not, self.targets))
        why_no_hook = next(obstacles, None) or injection.attach()
        if why_no_hook is None:
            self.injection = injection
        else:
            self._at_start.append(NO_HOOK.format(why=why_no_hook))
            self._stacks = stacks.StackReader(self.targets[0].pid, self.folder)
        for sentence in self._at_start:
            _say(sentence)
        _say(RECORDING.format(which=_target_names(self.targets), until=self._duration_text()))

    def _environment(self) -> dict[str, str]:
        options = {
            settings.FOLDER: self.folder,
            settings.PROFILED_STEPS: self.options.steps,
            settings.AFTER_SECONDS: self.options.after_s,
            settings.LOADER: int(self.options.time_loader),
            settings.STACKS: int(self.options.stacks),
            settings.RECORDER: recorder_version(),
        }
        return {name: str(value) for name, value in options.items()}

    @property
    def _waits_for_profile(self) -> bool:
        return self.options.seconds is None and self.injection is not None and self.options.steps > 0

    @property
    def _limit_s(self) -> float:
        if self.options.seconds is not None:
            return self.options.seconds
        return MAX_WAIT_S if self._waits_for_profile else UNPROFILED_S

    def _duration_text(self) -> str:
        if self._waits_for_profile:
            return f"for {MIN_PROFILED_S:.0f} s or more, until a profile is taken"
        return f"for {self._limit_s:g} s"

    def watch(self, stop: threading.Event) -> None:
        """Wait until the recording is long enough, the training has ended, or ``stop`` is set."""
        while not stop.wait(POLL_PERIOD_S):
            now_ns = time.monotonic_ns()
            self.seconds = (now_ns - self._began_ns) / 1e9
            alive = [target for target in self.targets if target.is_alive()]
            for target in alive:
                self._last_readings[target.pid] = readings.read(target.pid, now_ns) or self._last_readings[target.pid]
            if self.injection is not None:
                self.injection.renew()
            if not alive or self.seconds >= self._limit_s:
                return
            if self._waits_for_profile and self._are_profiled(len(alive)) and self.seconds >= MIN_PROFILED_S:
                return

    def _are_profiled(self, ranks: int) -> bool:
        """Return whether ``ranks`` profiles are written, or the first one was written MAX_OTHER_RANKS_S ago."""
        profiles = sum(1 for kind in ("trace", timed_profile.KIND) for _ in self.folder.glob(f"{kind}-*.json"))
        if profiles and self._profiled_s is None:
            self._profiled_s = self.seconds
        return profiles >= ranks or (self._profiled_s is not None and self.seconds - self._profiled_s >= MAX_OTHER_RANKS_S)

    def end(self) -> AttachResult:
        """Remove the hook, stop the sampler and the stack reader, and return the result."""
        if self.injection is not None:
            for sentence in self.injection.detach():
                _say(sentence)
        if self._sampler is not None:
            self._missing += telemetry.missing_telemetry(telemetry.write_session(self._sampler, self.folder))
        usage = [readings.in_words(pid, first, self._last_readings[pid]) for pid, first in self._first_readings.items()]
        self._missing += list(filter(None, usage))
        if self._stacks is not None:
            self._missing += self._stacks.end()
        if not any(target.is_alive() for target in self.targets):
            self._missing.append(ENDED)
        self._missing += errors_in(self.folder)
        stays = self.injection.stays if self.injection is not None else {}
        return AttachResult(0, missing=[*self._at_start, *self._missing], at_start=frozenset(self._at_start), stays=stays)


def _write(recording: _Recording, bundle: Path, name: str, recorded: str, launched: launch.LaunchResult) -> None:
    """Write the recorded runs into ``bundle``, if there are any."""
    launched.missing += run_messages(recording.folder)
    runs = runs_to_pack(recording.folder)
    if recording.injection is not None:
        launched.missing += _missing_from_hook(runs, recording.options)
    if runs:
        launch.write(bundle, name, recording.targets[0].command, recorded, runs, launched)
    else:
        launched.exit_code = 1
        launched.missing.append("Nothing was recorded, so no file was written.")


def _missing_from_hook(runs: Sequence[RecordedRun], options: AttachOptions) -> list[str]:
    """Return a message if the hook saw no loop or took no profile; [] if nothing is missing."""
    kinds = {about["kind"]: path for run in runs[:1] for path, about in run.sources}
    if "marks" not in kinds:
        return [f"{NO_STEP} {PROFILED}" if "trace" in kinds else NO_STEP]
    if "trace" in kinds or options.steps <= 0:
        return []
    steps, seconds = loop_extent(kinds["marks"])
    return [NO_PROFILE.format(steps=steps, seconds=seconds, after=options.after_s)]


def _target_names(targets: Sequence[Process]) -> str:
    names = [f"{target.pid}" + (f" (rank {target.rank})" if target.rank is not None else "") for target in targets]
    program = default_run_name(targets[0].command)
    return (
        f"process {names[0]}, {program}" if len(names) == 1 else f"the {len(names)} processes of {program}: {', '.join(names)}"
    )


def _say(sentence: str) -> None:
    print(f"sawtooth: {sentence}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _set_by_signals(stop: threading.Event) -> Iterator[None]:
    """Make Ctrl-C and termination signals set ``stop``, so that the hook is always removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
