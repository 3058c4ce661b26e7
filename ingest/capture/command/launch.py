"""Launcher of `sawtooth run`: sample, mark steps, profile a few and pack one ``.sawtooth`` file.

The command keeps its exit code, output and signals. Its PYTHONPATH begins with ``startup``, so that Python loads the hook.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sawtooth.ingest import children
from sawtooth.ingest.capture.command import interpreter, no_profile, parts, progress, settings
from sawtooth.ingest.capture.command.foreground import run_in_foreground
from sawtooth.ingest.capture.command.interpreter import NOT_LOADED, command_with_python, option_warnings
from sawtooth.ingest.capture.command.parts import (
    LOADED,
    PARTS_LEFT,
    TAKEN,
    abandoned_folders,
    errors_in,
    free_name,
    keep_unpacked,
    parts_folder,
)
from sawtooth.ingest.capture.command.recorded_runs import STEP_SETTING, RecordedRun, run_messages, runs_to_pack
from sawtooth.ingest.capture.command.scalars import ScalarWriter
from sawtooth.ingest.capture.command.telemetry import STEP_RATE_FILE, missing_telemetry, start_sampler, write_session
from sawtooth.ingest.capture.in_process import postponed
from sawtooth.ingest.capture.packing import pack_runs
from sawtooth.ingest.capture.process_rank import member_of_job
from sawtooth.ingest.loop.command import ENDED_WITH, RECORDED_BY, default_run_name
from sawtooth.installation import IMPORT_ROOT, recorder_version

STARTUP = Path(__file__).resolve().parent / "startup"
PROFILED_STEPS = 5  # This number is enough for a median, and small enough for a trace of some megabytes.
STEP_RATE_PERIOD_S = 1.0  # Interval of the step rates that the Live page shows.
SCALARS_PERIOD_S = 10.0  # Interval of the scalars for TensorBoard. It is short enough for a smooth curve over hours.
PYTHON_FAILED = 1  # Python's exit code after an exception, such as a failed import.
MIN_TELEMETRY_S = 10.0  # If a command fails in less time and before its first step, its telemetry is not stored.
FAILED = f"{ENDED_WITH} {{code}}{{after}}{{when}}."
NO_STEP = f"{ENDED_WITH} {{code}} before its first step, so no run was written.{{telemetry}}"
BY_SIGNAL = 128  # A larger exit code means that a signal ended the process. The marks of the last second may then be missing.
OR_MORE = " or a few more"
BEFORE_PROFILE = ", before a profile was taken"
NO_ROOM = "Nothing was recorded: the temporary folder cannot be written ({why}). Free space there, or choose another folder with TMPDIR=…"
DELETED = "Nothing was recorded: {folder} was deleted while the command ran. Choose another temporary folder with TMPDIR=…"
NO_TORCH = "{python} has no PyTorch. Activate the training's environment, or name its Python: sawtooth run /path/to/env/bin/python {command}"


@dataclass
class LaunchResult:
    """Result of a run: exit code, bundle (None if nothing was recorded), and messages about missing data.

    Messages in ``at_start`` were printed before the training began.
    """

    exit_code: int
    bundle: Path | None = None
    missing: list[str] = field(default_factory=list)
    at_start: frozenset[str] = frozenset()

    @property
    def at_end(self) -> list[str]:
        """The messages that were not printed before the training began."""
        return [message for message in self.missing if message not in self.at_start]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `sawtooth run` records.

    * ``steps``: number of steps to profile, in a steady loop after ``after_s`` seconds, and every ``every`` steps (0: never).
    * ``sample``: record telemetry. ``time_loader``: time the loader's processes. ``stacks``: record Python calls in the profile.
      ``memory``: write the allocator's history into files beside the bundle.
    * ``samples``, ``flops``: numbers per step, if they are known.
    * ``progress_s``: print the step rate at this interval (0: never). ``scalars``: write the step rate for TensorBoard into this folder,
      at this interval or every SCALARS_PERIOD_S.
    * ``push``: send telemetry and step rate to the dashboard at this address. ``metrics``: serve them for Prometheus at this address.
    """

    steps: int = PROFILED_STEPS
    after_s: float = settings.DEFAULT_AFTER_S
    sample: bool = True
    every: int = 0
    time_loader: bool = True
    stacks: bool = False
    memory: bool = False
    samples: float | None = None
    flops: float | None = None
    progress_s: float = 0.0
    scalars: Path | None = None
    push: str | None = None
    metrics: str | None = None

    def for_hook(self) -> dict[str, float]:
        """Return the options of the hook, which are environment variables of the training."""
        return {
            settings.PROFILED_STEPS: self.steps,
            settings.AFTER_SECONDS: self.after_s,
            settings.EVERY: self.every,
            settings.LOADER: int(self.time_loader),
            settings.STACKS: int(self.stacks),
            settings.MEMORY: int(self.memory),
        }


def run(command: Sequence[str], bundle: Path, options: RunOptions = RunOptions(), *, name: str = "") -> LaunchResult:
    """Run ``command`` and record it into ``bundle``."""
    words, python = command_with_python(command)
    name = name or default_run_name(command)
    if _starts_nothing(words):
        return LaunchResult(run_in_foreground(words, os.environ))
    other_python = [] if python is None else [python]
    _say([*other_python, *option_warnings(words), *(PARTS_LEFT.format(folder=folder) for folder in abandoned_folders())])
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(parts_folder())
        except OSError as error:  # The training still runs, without a recording.
            code = run_in_foreground(words, os.environ)
            return LaunchResult(code, missing=[NO_ROOM.format(why=error.strerror)])
        launched, seconds = _train(words, folder, name, options)
        try:
            _pack(launched, folder, bundle, options, name=name, command=command, words=words, seconds=seconds)
        except Exception as error:
            # The training's exit code is returned, and the recorded parts stay.
            launched.missing.append(keep_unpacked(error, folder, bundle))
        return launched


def _say(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"sawtooth: {sentence}", file=sys.stderr, flush=True)


def _train(words: Sequence[str], folder: Path, name: str, options: RunOptions) -> tuple[LaunchResult, float]:
    """Run the training with sampler and hook, which write into ``folder``; return result and seconds."""
    serving = ("--prometheus", options.metrics) if options.metrics else ()
    sampler, missing = start_sampler(folder, options.push, name, *serving) if options.sample else (None, [])
    # The user should know about missing telemetry before hours of training.
    _say([f"{message} The command runs without it." for message in missing])
    with _progress(folder, options, missing):
        at_start = frozenset(missing)
        start_s = time.monotonic()
        code = run_in_foreground(words, hooked_environment(folder, options.for_hook()))
        seconds = time.monotonic() - start_s
    launched = LaunchResult(code, missing=missing, at_start=at_start)
    if sampler is not None:
        launched.missing += missing_telemetry(write_session(sampler, folder))
    return launched, seconds


def _pack(
    launched: LaunchResult,
    folder: Path,
    bundle: Path,
    options: RunOptions,
    *,
    name: str,
    command: Sequence[str],
    words: Sequence[str],
    seconds: float,
) -> None:
    """Write the parts in ``folder`` into ``bundle``, and add messages about missing data to ``launched``.

    No run is written if the command failed before the first step. The telemetry is saved if the command ran for MIN_TELEMETRY_S.
    """
    if not folder.exists():
        launched.missing = [DELETED.format(folder=folder)]
        return
    errors = errors_in(folder)
    launched.missing += [*errors, *run_messages(folder)]
    runs = runs_to_pack(folder)
    if launched.exit_code and not no_profile.has_marks(runs) and not no_profile.is_profiled(runs):
        telemetry_place = parts.keep_samples(folder, bundle) if seconds >= MIN_TELEMETRY_S else ""
        advice = _advice(words, command, launched.exit_code)
        launched.missing = [*errors, *(advice or [NO_STEP.format(code=launched.exit_code, telemetry=telemetry_place)])]
        launched.at_start = frozenset()
        return
    if not errors:
        if no_profile.has_marks(runs) or (folder / LOADED).exists():
            launched.missing += _missing_parts(runs, launched.exit_code, options.steps, options.after_s, folder)
        else:
            launched.missing.append(NOT_LOADED)
    facts = {"samples_per_step": options.samples, "flops_per_step": options.flops}
    for recorded in runs:
        recorded.facts.update({fact: value for fact, value in facts.items() if value})
    if options.memory:
        launched.missing += parts.keep_snapshots(folder, bundle)
    if runs:
        write(bundle, name, command, f"{RECORDED_BY} {' '.join(_valid_unicode(command))}`.", runs, launched)


def _starts_nothing(words: Sequence[str]) -> bool:
    """Return whether the command or its Python script does not exist, so that nothing can be recorded."""
    if shutil.which(words[0]) is None:
        return True
    is_script = len(words) > 1 and Path(words[0]).name.startswith("python") and words[1].endswith(".py")
    return is_script and not Path(words[1]).exists()


def _advice(words: Sequence[str], command: Sequence[str], exit_code: int) -> list[str]:
    """Return advice for a command that failed because its Python has no PyTorch; [] for other failures."""
    python = words[0]
    is_python = Path(python).name.startswith("python")
    if (
        exit_code != PYTHON_FAILED
        or not is_python
        or interpreter.can_import(python, [interpreter.REQUIRED_MODULE]) is not False
    ):
        return []
    program = command if words != list(command) else command[1:]
    return [NO_TORCH.format(python=python, command=" ".join(program))]


def _missing_parts(runs: Sequence[RecordedRun], exit_code: int, steps: int, after_s: float, folder: Path) -> list[str]:
    """Return messages about a failed command, a missing loop or a missing profile.

    ``folder`` has the hook's notes about the reasons.
    """
    is_complete = steps <= 0 or no_profile.is_profiled(runs)
    if exit_code:
        messages = []
        if runs:
            or_more = OR_MORE if exit_code > BY_SIGNAL else ""
            after = f" after {steps_text}{or_more}" if (steps_text := no_profile.steps_taken(runs[0])) else ""
            messages.append(FAILED.format(code=exit_code, after=after, when="" if is_complete else BEFORE_PROFILE))
        if no_profile.is_profiled(runs) and not no_profile.has_loop(runs):
            messages.append(no_profile.no_loop_sentence(runs, folder, after_s))
        return messages
    if not no_profile.has_loop(runs):
        return [no_profile.no_loop_sentence(runs, folder, after_s)]
    if steps > 0 and (delay := postponed.delay_message(folder, is_complete)) is not None:
        return [delay]
    return [] if is_complete else [no_profile.no_profile_sentence(runs[0], steps, after_s)]


def _progress(folder: Path, options: RunOptions, missing: list[str]) -> contextlib.ExitStack:
    """Return a context that reports progress to the sampler and, on request, to stderr and TensorBoard.

    If TensorBoard's folder cannot be written, a message is added to ``missing``.
    """
    samples, seconds, scalars = options.samples, options.progress_s, options.scalars
    stack = contextlib.ExitStack()
    sinks = [progress.to_sampler(folder / STEP_RATE_FILE, samples, options.flops, STEP_RATE_PERIOD_S)]
    if seconds > 0:
        sinks.append(progress.on_stderr(samples, seconds))
    if scalars is not None:
        try:
            writer = ScalarWriter(scalars)
            stack.callback(writer.close)
            sinks.append(progress.to_tensorboard(writer, samples, seconds or SCALARS_PERIOD_S))
        except OSError as error:
            missing.append(f"No scalars: {scalars} cannot be written ({error.strerror}).")
    stack.enter_context(progress.ProgressReporter(folder, sinks))
    return stack


def hooked_environment(folder: Path, options: Mapping[str, float]) -> dict[str, str]:
    """Return the environment of the training, with the variables that load and configure the hook."""
    variables = children.original_environment()
    path = os.pathsep.join(filter(None, (str(STARTUP), variables.get("PYTHONPATH"))))
    for_hook = {
        settings.FOLDER: str(folder),
        **{name: str(value) for name, value in options.items()},
        settings.RECORDER: recorder_version(),
        settings.ONLY_RANK: member_of_job(variables) or "",
        "SAWTOOTH_IMPORT_ROOT": str(IMPORT_ROOT),
    }
    return {**variables, "PYTHONPATH": path, **for_hook}


def _valid_unicode(words: Sequence[str]) -> list[str]:
    """Return the words with replacement characters, because a file name may contain invalid Unicode."""
    return [word.encode(errors="replace").decode() for word in words]


def write(
    bundle: Path, name: str, command: Sequence[str], recorded: str, runs: Sequence[RecordedRun], launched: LaunchResult
) -> None:
    """Write ``runs`` of the training ``command`` into ``bundle``; their notes begin with ``recorded``."""
    notes = "\n".join([recorded, *launched.missing])
    entries = []
    for run in runs:
        title = name if run is runs[0] else f"{name}, step {run.step:,}"
        settings = {} if len(runs) == 1 else {STEP_SETTING: str(run.step)}
        entry = {"name": title, "notes": notes, "settings": settings, "facts": run.facts, "command": _valid_unicode(command)}
        entries.append((entry, run.sources))
    file = free_name(bundle)
    if file != bundle:  # Another recording has taken the name in the meantime.
        launched.missing.append(TAKEN.format(taken=bundle, free=file))
    pack_runs(file, entries)
    launched.bundle = file
