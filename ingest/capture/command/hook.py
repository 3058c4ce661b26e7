"""The hook of `sawtooth run` in a training process: it marks and profiles optimizer steps.

``startup/sitecustomize.py`` loads this module when the training imports PyTorch. The hook reads its settings from the
environment (``HookSettings``) and writes only into the run's folder. Its errors never reach the training. A mark takes two microseconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

from ...loop.leading_optimizer import LeadingOptimizer
from ...loop.step_boundary import STEP_NAME
from .. import batches
from ..between_steps import BETWEEN_STEPS, BetweenSteps
from ..devices import current_gpu
from ..in_process import compiler
from ..in_process.exit_actions import finish_at_end
from ..in_process.loader_waits import LOADER_WAITS, LoaderWaits
from ..in_process.postponed import PostponedProfile
from ..in_process.profile_cost import ProfileCost
from ..in_process.profilers import PROFILERS
from ..in_process.rank_agreement import DecisionChecks, agreed_start
from ..marks import MarkWriter
from ..profiler import StepProfiler
from .call_site import CallSite, CallSites
from .graphs import GRAPHS
from .loop_times import MIN_STEPS_BEFORE_PROFILE, Extent, LoopWatch
from .parts import note_error, publish
from .settings import HookSettings, with_run_folder
from .updates import UPDATES
from .without_optimizer import boundaries, timed_profile

HOOK_FRAMES = 3  # A step calls this many nested functions of the hook before the call site is read.
UNSHARED_START_STEP = 50  # Ranks without a shared folder cannot agree on a step, so all of them profile from this step on.
BOUNDARY_SUFFIX = ".sign"  # File names of a loop without an optimizer have this suffix after the process.

watch_evaluation, watch_saving, watch_updates = BETWEEN_STEPS.watch_evaluation, BETWEEN_STEPS.watch_saving, UPDATES.watch
watch_graphs, watch_batches = GRAPHS.watch, boundaries.watch_batches
watch_profilers, watch_exports, leave_out_recorder = PROFILERS.watch, PROFILERS.watch_exports, compiler.leave_out_recorder


class Hook:
    """The hook of one process. PyTorch calls ``on_step`` after every step of every optimizer."""

    def __init__(
        self,
        settings: HookSettings,
        *,
        torch: Any = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        between_steps: BetweenSteps = BETWEEN_STEPS,
        loader_waits: LoaderWaits = LOADER_WAITS,
        call_site: Callable[[int, int], CallSite] | None = None,
        boundary: tuple[str, str] | None = None,
        wait_factor: Callable[[], float] = lambda: 1.0,
        on_loop: Callable[[], None] = lambda: None,
    ) -> None:
        """If no optimizer makes the steps, ``boundary`` is the kind of step boundary and a module's name.

        The wait for the profile is multiplied by ``wait_factor()``. ``on_loop`` is called when an optimizer steps for the second time.
        """
        self.settings = settings
        self._torch, self._clock_ns = torch, clock_ns
        self._marks: MarkWriter | None = None
        self._read_phase, self._read_wait = between_steps.phase_reader(), loader_waits.wait_reader()
        self._call_site = call_site or CallSites().current
        self._loop = LeadingOptimizer()
        self._steps: dict[int, tuple[int, int]] = {}  # The number and the last step of each optimizer.
        self._watch, self._decision_checks = LoopWatch(), DecisionChecks(clock_ns)
        self._agreed_start: int | None = None  # The step at which all ranks begin the profile.
        self._extent = Extent(settings.steps)  # The extent of the current or next profile.
        self._profiler: StepProfiler | None = None
        self._profiled_optimizer = 0  # The optimizer that led the loop when the profile began.
        self._last_profiled_step = 0  # The step of the profiled optimizer that ends the profile.
        self._step_before_profile = 0  # The loop's last step before the profile.
        self._earliest_start = 0  # No profile begins before this step of the loop.
        self._has_profile = False  # Whether the first profile was taken.
        self._later_traces: list[Path] = []  # The traces of all profiles after the first.
        self._postponed, self._cost = PostponedProfile(settings.folder), ProfileCost(settings.folder, settings.ranks)
        self._profiling_is_over, self._is_off = settings.steps <= 0, False  # If the hook is off, it ignores all steps.
        self._boundary, self._wait_factor, self._on_loop, self._forked = boundary, wait_factor, on_loop, False

    def on_step(self, optimizer: Any, *_: Any) -> None:
        """Mark a step, and start or end the profile when it is due.

        A step that a CUDA graph captures is not marked, because each replay of the graph is marked as a step.
        """
        if self._is_off or GRAPHS.captures(optimizer) or (UPDATES.is_running and UPDATES.is_repeated_step()):
            return
        try:
            self._advance(id(optimizer))
        except Exception as error:  # Errors of the recorder must not reach the training.
            self._break(error)

    def on_boundary(self, place: int) -> None:
        """Mark a step that no optimizer makes; ``place`` is the number of the line that ended the step."""
        if self._is_off:
            return
        try:
            self._advance(place)
        except Exception as error:
            self._break(error)

    # This attribute keeps torch.compile from tracing on_step. torch.compiler.disable has the same effect, but loads the compiler.
    on_step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _advance(self, optimizer: int) -> None:
        now_ns = self._clock_ns()
        number, last_index = self._steps.get(optimizer, (len(self._steps), -1))
        index = last_index + 1
        self._steps[optimizer] = number, index
        if self._marks is None:
            if self._forked:  # The environment of a forked process may have received a rank in the meantime.
                self.settings = HookSettings.of(os.environ)
                self._cost = ProfileCost(self.settings.folder, self.settings.ranks)
            gpu = current_gpu(sys.modules.get("torch"))
            path, recorder = self._file("marks", "jsonl"), self.settings.recorder
            self._marks = MarkWriter(path, rank=self.settings.rank, recorder=recorder, gpu=gpu, boundary=self._boundary)
        if index == 1:  # A loop has at least two steps.
            self._on_loop()
        site = self._call_site(number, HOOK_FRAMES)
        phase = self._read_phase(number)
        waited, marked_phase = self._read_wait(number, phase), self._marked_phase(number, phase)
        self._marks.mark(index, now_ns=now_ns, phase=marked_phase, optimizer=number, site=site, waited=waited)
        PROFILERS.discard_stopping()
        if self._profiling_is_over:
            return
        leads, place = self._loop.note_step(number), (number, site.number)
        if self._profiler is not None:
            is_profiled, is_last = number == self._profiled_optimizer, index >= self._last_profiled_step
            has_left_loop = is_profiled and not self._watch.has_place(place)
            if is_profiled and self._boundary is not None and not self._profiler.interrupted:
                with self._torch.profiler.record_function(f"{STEP_NAME}{self._boundary[0]}"):
                    pass  # The empty range marks the end of the step in the trace.
            if self._profiler.interrupted:
                self._drop()  # The next profile begins after the other profiler has ended.
                self._postponed.interrupted()
            elif has_left_loop or self._loop.has_ended(self._profiled_optimizer):
                self._try_later(keep=is_profiled)
            elif is_profiled and self._profiler.on_own_thread and (self._cost.must_end(index) or is_last):
                self._stop(now_ns)
        elif leads:
            needs_profile = self._watch.note_step(place, now_ns)
            if (needs_profile or self.settings.every > 0) and self._may_start(self._loop.steps - 1):
                self._start()
                self._profiled_optimizer, self._step_before_profile = number, self._loop.steps - 1
                # One step is added, because the profile begins within a step.
                self._last_profiled_step = index + self._extent.steps + 1

    def _marked_phase(self, number: int, phase: str) -> str:
        return "profile" if self._profiler is not None else "recorder" if self._cost.slows(number) else phase

    def _may_start(self, index: int) -> bool:
        """Return whether a profile is due after step ``index`` and no other profiler runs."""
        return not self._postponed.still_waits and self._is_time(index) and not self._postponed.must_wait(index)

    def _is_time(self, index: int) -> bool:
        if index < self._earliest_start:
            return False
        if self._has_profile and self.settings.every > 0:
            return True
        if self.settings.ranks > self.settings.ranks_here:
            return index >= UNSHARED_START_STEP
        if self.settings.ranks == 1:
            return self._can_begin()
        decides = self.settings.rank == 0
        if self._agreed_start is None and (self._can_begin() if decides else self._decision_checks.is_due(index)):
            choice = (*self._extent, self._watch.step_ns) if decides else None
            agreed = agreed_start(self.settings.folder, index, choice)
            if agreed is not None:
                self._agreed_start, self._extent = agreed[0], Extent(*agreed[1:])
        return self._agreed_start is not None and index >= self._agreed_start

    def _can_begin(self) -> bool:
        """Return whether a profile can begin now; if so, store the extent of the profile."""
        min_s = self.settings.after_s
        if not self._watch.is_steady(min_s) or not self._watch.is_steady(min_s * self._wait_factor()):
            return False
        extent = self._watch.extent(self.settings.steps)
        self._extent = extent or self._extent
        return extent is not None

    def _start(self) -> None:
        self._torch = self._torch or sys.modules["torch"]
        memory = self._file("memory", "pickle") if self.settings.memory else None
        trace, options = self._file("trace", "part"), {"with_stack": self.settings.stacks}
        self._profiler = StepProfiler(self._torch, trace, options=options, memory=memory)
        self._cost.note_begin(uses_gpu=self._torch.cuda.is_available())

    def _stop(self, now_ns: int) -> None:
        self._profiling_is_over = self.settings.every <= 0 and self.settings.ranks > 1  # Ranks agree on one profile only.
        self._end()
        self._watch.note_profile(now_ns)

    def _end(self, *, with_loop: bool = False) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with self._cost.ending(range(len(self._steps)), self._extent.steps, with_loop=with_loop):
                profiler.stop()
                self._publish(profiler.trace)

    def _end_with_loop(self, *, keep: bool) -> None:
        """End the profile of a loop that has ended; drop it if it has too few steps, or without ``keep``."""
        if keep and self._profiler is not None and self._profiler.writes_trace and self._cost.allows_keeping:
            self._end(with_loop=True)
        else:
            self._drop()

    def _try_later(self, *, keep: bool) -> None:
        """End the profile of a loop that has ended, and wait for the next loop."""
        self._end_with_loop(keep=keep)
        self._watch.forget_times()
        self._earliest_start = self._loop.steps + MIN_STEPS_BEFORE_PROFILE

    def _drop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._cost.note_end(range(len(self._steps)))
            profiler.abandon()

    def _publish(self, part: Path) -> None:
        """Publish a trace. Without ``every``, a later trace is of a longer loop and replaces the first trace."""
        step = self._step_before_profile if self._has_profile and self.settings.every > 0 else None
        publish(part, self._file("trace", "json"), self._later_traces, step)
        # The next profile begins after whole rounds, so that it begins where this one began in a round.
        rounds = ceil(max(self.settings.every, 2 * self._extent.steps) / self._extent.round)
        self._has_profile, self._earliest_start = True, self._step_before_profile + rounds * self._extent.round

    def finish(self) -> None:
        """Write the remaining marks at the process's end, and the running profile if it has enough steps."""
        try:
            self._end_with_loop(keep=not self._is_off)
        except Exception as error:
            note_error(self._file("trouble", "json"), error, self.settings.rank)
        self.leave()

    def leave(self) -> None:
        """Write the remaining marks, but no profile, because ending it would wait for a GPU that may hang."""
        self._is_off = True  # A loop in another thread then stops writing.
        try:
            self._postponed.write()
            if self._marks is not None:
                self._marks.close()
        except Exception as error:  # The disk may be full.
            note_error(self._file("trouble", "json"), error, self.settings.rank)

    def forget(self) -> None:
        """Turn the hook off in a forked process, unless the loop begins there."""
        self._forked, self._is_off = True, self._is_off or self._marks is not None or self._boundary is not None
        self._marks, self._profiler = None, None

    def drop(self) -> None:
        """Turn the hook off, and delete everything that it recorded."""
        self._is_off = True  # ``finish`` then writes no profile.
        self.finish()
        for kind in ("marks", "trace"):
            for path in list(self.settings.folder.glob(self._file(kind, "*").name.replace(".*", "*"))):
                path.unlink(missing_ok=True)

    def _file(self, kind: str, suffix: str) -> Path:
        return self.settings.file(kind, suffix, BOUNDARY_SUFFIX if self._boundary is not None else "")

    def _break(self, error: Exception) -> None:
        self._is_off = True
        note_error(self._file("trouble", "json"), error, self.settings.rank)
        self.finish()


# The modules are torch.utils.data._utils.fetch and pin_memory.
watch_loaders, watch_pinning = with_run_folder(batches.watch), with_run_folder(batches.watch_pinning)


def install(optimizers: Any) -> None:
    """Hook every optimizer of this process; ``optimizers`` is the module torch.optim.optimizer."""
    register = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if register is None:
        return  # PyTorch before 2.1 has no such hook, so only telemetry is recorded.
    hook, detector = hook_and_detector(settings := HookSettings.of(os.environ))
    register(hook.on_step)
    GRAPHS.on_step = hook.on_step
    detector.watch(optimizers)
    profile = timed_profile.start(settings, sys.modules["torch"], detector.has_loop, detector.optimizer_exists)
    finish_at_end(profile, detector, hook)


def hook_and_detector(
    settings: HookSettings, is_counting: Callable[[], bool] = lambda: True
) -> tuple[Hook, boundaries.BoundaryDetector]:
    """Return the hook of optimizer steps, and the detector of other boundaries."""
    detector = boundaries.DETECTOR = boundaries.BoundaryDetector(
        settings, lambda *boundary: Hook(settings, boundary=boundary, wait_factor=detector.wait_factor), is_counting
    )
    return Hook(settings, on_loop=detector.give_up), detector
