"""The hook of `sawtooth run` in a training process: it marks and profiles optimizer steps.

``startup/sitecustomize.py`` loads this module when the training imports PyTorch. The hook reads its settings from the
environment (``HookSettings``) and writes only into the run's folder. Its errors never reach the training. A mark takes two microseconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
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
from ..in_process.postponed import Postponed
from ..in_process.profile_cost import ProfileCost
from ..in_process.profilers import PROFILERS
from ..in_process.rank_agreement import DecisionChecks, agreed_start
from ..marks import MarkWriter
from ..profiler import StepProfiler
from .call_site import CallSite, CallSites
from .graphs import GRAPHS
from .loop_times import MIN_STEPS_BEFORE_PROFILE, Extent, LoopWatch
from .parts import note_error, publish
from .settings import FOLDER, LOADER, HookSettings
from .updates import UPDATES
from .without_optimizer import boundaries, timed_profile

HOOK_FRAMES = 3  # This many frames of the hook are above the call site of a step.
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
        patience: Callable[[], float] = lambda: 1.0,
        on_loop: Callable[[], None] = lambda: None,
    ) -> None:
        """``boundary`` is the kind of step boundary and a module's name, if no optimizer makes the steps.

        The wait for the profile is multiplied by ``patience()``. ``on_loop`` is called when an optimizer steps for the second time.
        """
        self.settings = settings
        self._torch, self._clock_ns = torch, clock_ns
        self._marks: MarkWriter | None = None
        self._since_last, self._waited = between_steps.since_last(), loader_waits.since_last()
        self._call_site = call_site or CallSites().here
        self._loop = LeadingOptimizer()
        self._steps: dict[int, tuple[int, int]] = {}  # by optimizer: its number in the order of first steps, and its last step
        self._watch, self._decision_checks = LoopWatch(), DecisionChecks(clock_ns)
        self._begin_at: int | None = None  # the step at which all ranks begin the profile
        self._extent = Extent(settings.steps)  # the extent of the current or next profile
        self._profiler: StepProfiler | None = None
        self._profiled_optimizer = 0  # the optimizer that led the loop when the profile began
        self._until = 0  # the step of the profiled optimizer that ends the profile
        self._began = 0  # the loop's last step before the profile
        self._not_before = 0  # No profile begins before this step of the loop.
        self._taken = False  # whether the first profile was taken
        self._later: list[Path] = []  # the traces of all profiles after the first
        self._postponed, self._cost = Postponed(settings.folder), ProfileCost(settings.folder, settings.ranks)
        self._over, self._broken = settings.steps <= 0, False  # whether no profile may begin; whether the hook is off
        self._boundary, self._patience, self._on_loop, self._forked = boundary, patience, on_loop, False

    def on_step(self, optimizer: Any, *_: Any) -> None:
        """Mark a step, and start or end the profile when it is due.

        A step that a CUDA graph captures is not marked here; each replay of the graph is marked as a step.
        """
        if self._broken or GRAPHS.captures(optimizer) or (UPDATES.within and UPDATES.is_again()):
            return
        try:
            self._advance(id(optimizer))
        except Exception as error:  # Errors of the recorder must not reach the training.
            self._break(error)

    def on_boundary(self, place: int) -> None:
        """Mark a step that no optimizer makes; ``place`` is the number of the program's line that ended it."""
        if self._broken:
            return
        try:
            self._advance(place)
        except Exception as error:
            self._break(error)

    # This attribute keeps torch.compile from tracing on_step. torch.compiler.disable has the same effect, but loads the compiler.
    on_step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _advance(self, optimizer: int) -> None:
        now_ns = self._clock_ns()
        number, before = self._steps.get(optimizer, (len(self._steps), -1))
        index = before + 1
        self._steps[optimizer] = number, index
        if self._marks is None:
            if self._forked:  # The environment of a forked process may have got a rank in the meantime.
                self.settings = HookSettings.of(os.environ)
                self._cost = ProfileCost(self.settings.folder, self.settings.ranks)
            gpu = current_gpu(sys.modules.get("torch"))
            path, recorder = self._file("marks", "jsonl"), self.settings.recorder
            self._marks = MarkWriter(path, rank=self.settings.rank, recorder=recorder, gpu=gpu, boundary=self._boundary)
        if index == 1:  # A loop has at least two steps.
            self._on_loop()
        site = self._call_site(number, HOOK_FRAMES)
        since = self._since_last(number)  # "train", or the evaluation or checkpoint since the previous step
        waited, phase = self._waited(number, since), self._phase(number, since)
        self._marks.mark(index, now_ns=now_ns, phase=phase, optimizer=number, site=site, waited=waited)
        PROFILERS.end_left()
        if self._over:
            return
        leads = self._loop.takes(number)
        if self._profiler is not None:
            is_profiled = number == self._profiled_optimizer
            if is_profiled and self._boundary is not None and not self._profiler.interrupted:
                with self._torch.profiler.record_function(f"{STEP_NAME}{self._boundary[0]}"):
                    pass  # The empty range marks the end of the step in the trace.
            if self._profiler.interrupted:
                self._drop()  # Another profiler interrupted this one. The next profile begins after the other profiler has ended.
                self._postponed.interrupted()
            elif (is_profiled and not self._watch.knows((number, site.number))) or self._loop.has_ended(
                self._profiled_optimizer
            ):
                self._try_later(keep=is_profiled)
            elif is_profiled and self._profiler.on_own_thread and (self._cost.must_end(index) or index >= self._until):
                self._stop(now_ns)
        elif leads:
            to_profile = self._watch.takes((number, site.number), now_ns)
            if (to_profile or self.settings.every > 0) and self._may_start(self._loop.steps - 1):
                self._start()
                self._profiled_optimizer, self._began = number, self._loop.steps - 1
                self._until = index + self._extent.steps + 1  # One is added, because the profile begins within a step.

    def _phase(self, number: int, phase: str) -> str:
        return "profile" if self._profiler is not None else "recorder" if self._cost.slows(number) else phase

    def _may_start(self, index: int) -> bool:
        """Return whether a profile is due after step ``index`` and no other profiler runs."""
        return not self._postponed.still_waits and self._is_time(index) and not self._postponed.must_wait(index)

    def _is_time(self, index: int) -> bool:
        if index < self._not_before:
            return False
        if self._taken and self.settings.every > 0:
            return True
        if self.settings.ranks > self.settings.ranks_here:
            return index >= UNSHARED_START_STEP
        if self.settings.ranks == 1:
            return self._can_begin()
        first = self.settings.rank == 0
        if self._begin_at is None and (self._can_begin() if first else self._decision_checks.is_due(index)):
            mine = (*self._extent, self._watch.step_ns) if first else None
            agreed = agreed_start(self.settings.folder, index, mine)
            if agreed is not None:
                self._begin_at, self._extent = agreed[0], Extent(*agreed[1:])
        return self._begin_at is not None and index >= self._begin_at

    def _can_begin(self) -> bool:
        """Return whether a profile can begin, because the loop is steady; store the profile's extent."""
        least_s = self.settings.after_s
        if not self._watch.is_steady(least_s) or not self._watch.is_steady(least_s * self._patience()):
            return False
        extent = self._watch.extent(self.settings.steps)
        self._extent = extent or self._extent
        return extent is not None

    def _start(self) -> None:
        self._torch = self._torch or sys.modules["torch"]
        memory = self._file("memory", "pickle") if self.settings.memory else None
        self._profiler = StepProfiler(
            self._torch, self._file("trace", "part"), options={"with_stack": self.settings.stacks}, memory=memory
        )
        self._cost.begins(after_first=self._torch.cuda.is_available())

    def _stop(self, now_ns: int) -> None:
        self._over = self.settings.every <= 0 and self.settings.ranks > 1  # Several ranks agree on one profile only.
        self._end()
        self._watch.profiled(now_ns)

    def _end(self, *, with_loop: bool = False) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with self._cost.ending(range(len(self._steps)), self._extent.steps, with_loop=with_loop):
                profiler.stop()
                self._publish(profiler.trace)

    def _end_with_loop(self) -> None:
        """End a profile whose loop has ended; keep it if it has enough steps."""
        keeps = self._profiler is not None and self._profiler.can_be_kept and self._cost.allows_keeping
        self._end(with_loop=True) if keeps else self._drop()

    def _try_later(self, keep: bool) -> None:
        """End a profile whose loop has ended, and wait for the next loop; without ``keep``, drop the profile."""
        self._end_with_loop() if keep else self._drop()
        self._watch.forget_times()
        self._not_before = self._loop.steps + MIN_STEPS_BEFORE_PROFILE

    def _drop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._cost.slow(range(len(self._steps)))
            profiler.abandon()

    def _publish(self, part: Path) -> None:
        """Publish a trace. Without ``every``, a later trace is of a longer loop and replaces the first."""
        began = self._began if self._taken and self.settings.every > 0 else None
        publish(part, self._file("trace", "json"), self._later, began)
        rounds = -(-max(self.settings.every, 2 * self._extent.steps) // self._extent.round)
        self._taken, self._not_before = True, self._began + rounds * self._extent.round  # at this position of a round

    def finish(self) -> None:
        """Write the remaining marks at the process's end, and a profile with enough steps."""
        try:
            self._drop() if self._broken else self._end_with_loop()
        except Exception as error:
            note_error(self._file("trouble", "json"), error, self.settings.rank)
        self.leave()

    def leave(self) -> None:
        """Write the remaining marks only. Ending the profiler would wait for the GPU, which may hang."""
        self._broken = True  # A loop in another thread then stops writing.
        try:
            self._postponed.write()
            if self._marks is not None:
                self._marks.close()
        except Exception as error:  # The disk may be full.
            note_error(self._file("trouble", "json"), error, self.settings.rank)

    def forget(self) -> None:
        """Do nothing more in a forked process, unless its loop begins there. The parent writes the data."""
        self._forked, self._broken = True, self._broken or self._marks is not None or self._boundary is not None
        self._marks, self._profiler = None, None

    def drop(self) -> None:
        """Do nothing more, and delete everything that was recorded."""
        self._broken = True  # ``finish`` then writes no profile.
        self.finish()
        patterns = (self._file(kind, "*").name.replace(".*", "*") for kind in ("marks", "trace"))
        for path in [path for pattern in patterns for path in self.settings.folder.glob(pattern)]:
            path.unlink(missing_ok=True)

    def _file(self, kind: str, suffix: str) -> Path:
        return self.settings.file(kind, suffix, BOUNDARY_SUFFIX if self._boundary is not None else "")

    def _break(self, error: Exception) -> None:
        self._broken = True
        note_error(self._file("trouble", "json"), error, self.settings.rank)
        self.finish()


def _with_run_folder(watch: Callable[[Any, Path], object]) -> Callable[[Any], object]:
    return lambda module: watch(module, Path(os.environ[FOLDER])) if os.environ.get(LOADER) != "0" else None


# The modules are torch.utils.data._utils.fetch and torch.utils.data._utils.pin_memory.
watch_loaders, watch_pinning = _with_run_folder(batches.watch), _with_run_folder(batches.watch_pinning)


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
    settings: HookSettings, counts: Callable[[], bool] = lambda: True
) -> tuple[Hook, boundaries.BoundaryDetector]:
    """Return the hook of optimizer steps and the detector of other boundaries (active while ``counts()``)."""
    detector = boundaries.DETECTOR = boundaries.BoundaryDetector(
        settings, lambda *boundary: Hook(settings, boundary=boundary, patience=detector.patience), counts
    )
    return Hook(settings, on_loop=detector.give_up), detector
