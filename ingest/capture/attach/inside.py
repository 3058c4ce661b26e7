"""Hook optimizers and patch modules of a running training for `sawtooth attach`; undo all changes.

``enter.py`` calls ``answer_request`` on the training's main thread. The call may come between any two instructions of the program.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypedDict

from .. import batches
from ..command import hook as hooks
from ..command.graphs import GRAPHS
from ..command.settings import LOADER, ONLY_RANK, HookSettings
from ..command.without_optimizer import timed_profile
from ..command.without_optimizer.boundaries import BoundaryDetector
from ..in_process.compiler import leave_out_recorder
from ..in_process.exit_actions import finish_at_end
from ..in_process.profilers import PROFILERS
from ..process_rank import environment_number

# These names equal the names in injection.py, which is not loaded inside the training.
LEASE_FILE = "attached"
BEGIN_FILE = "begin_ns"
LEASE_NS = 30_000_000_000  # If the lease is not renewed for this long, the recorder was stopped or killed (Ctrl-Z, kill -9).
LEASE_CHECK_NS = 2_000_000_000  # Time between two checks of the lease file.
OPTIMIZER_MODULE = "torch.optim.optimizer"
# The hook must not be changed while a thread runs code of hook.py or ``on_event``, because this code runs in the middle of a step.
HOOK_FILE = hooks.Hook.on_step.__code__.co_filename
ON_EVENT = BoundaryDetector.on_event.__code__
# PyTorch's wrapper around an optimizer's step stores the step's result in this variable, and then calls the hooks.
RESULT_VARIABLE = "out"
NO_OPTIMIZERS = "its PyTorch is still being imported (try again in a few seconds), or is older than 2.1"
ALREADY_RECORDED = "process {pid} is recorded already, by another sawtooth attach or run"

Undo = Callable[[], object]


class Attachment:
    """The hook in this process.

    The hook marks steps from the time in the file ``begin_ns``, until the hook is removed or the lease is not renewed.
    """

    def __init__(self, settings: HookSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.hook, self.detector = hooks.hook_and_detector(settings, self.is_counting)
        self._clock_ns = clock_ns
        self._settings, self._folder = settings, settings.folder
        self._undo: list[Undo] = []
        self._begun = False
        self._lease = (0, clock_ns())  # The lease file's modification time, and the time at which it was first read.
        self._next_check_ns = 0  # Time of the next check of the folder's files.
        self._remove: Undo = lambda: None
        self.is_over = False

    def on_step(self, optimizer: Any, *rest: Any) -> None:
        """Mark a step, if steps count now."""
        if self.is_counting():
            self.hook.on_step(optimizer, *rest)

    on_step._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile must not trace the hook.

    def is_counting(self) -> bool:
        """Return whether steps count now: after the ranks' common start, and while the recorder is alive."""
        if self.is_over:
            return False
        try:
            now_ns = self._clock_ns()
            if now_ns >= self._next_check_ns:
                self._check_files(now_ns)
        except Exception:  # Errors of the recorder must not disturb the training.
            self.end()
        return self._begun and not self.is_over

    def _check_files(self, now_ns: int) -> None:
        if not self._begun:
            with contextlib.suppress(OSError, ValueError):
                self._begun = now_ns >= int((self._folder / BEGIN_FILE).read_text())
        if self._begun:
            self._next_check_ns = now_ns + LEASE_CHECK_NS
        with contextlib.suppress(OSError):
            renewal_ns = os.stat(self._folder / LEASE_FILE).st_mtime_ns  # noqa: PTH116
            if renewal_ns != self._lease[0]:
                self._lease = renewal_ns, now_ns
        if now_ns - self._lease[1] > LEASE_NS:
            self.end()

    def begin(self, optimizers: Any, time_loader: bool) -> None:
        """Patch all loaded modules. Functions that have another name in this PyTorch are skipped."""
        handle = optimizers.register_optimizer_step_post_hook(self.on_step)
        self._remove = handle.remove
        GRAPHS.on_step = self.on_step
        timed = timed_profile.start(
            self._settings, sys.modules["torch"], self.detector.has_loop, self.detector.optimizer_exists
        )
        self._undo += [timed.interrupt, timed.leave, finish_at_end(timed, self.detector, self.hook)]
        self.detector.watch(optimizers)
        for name, watch in PATCHES.items():
            self._patch(name, watch)
        for name, watch_loader in LOADER_PATCHES.items() if time_loader else ():
            self._patch(name, watch_loader, self._folder)
        # If the training's own profiler runs, a second one would crash the training.
        PROFILERS.find_running(sys.modules["torch"])

    def _patch(self, module: str, watch: Callable[..., Undo | None], *arguments: Path) -> None:
        if module in sys.modules:
            with contextlib.suppress(Exception):
                self._undo.append(watch(sys.modules[module], *arguments) or (lambda: None))

    def end(self) -> None:
        """Write the remaining data and remove the patches. Hooks that PyTorch still calls do nothing."""
        self.is_over = True
        self.detector.finish()
        self.hook.finish()
        GRAPHS.on_step = None
        while self._undo:
            with contextlib.suppress(Exception):
                self._undo.pop()()

    def remove(self) -> None:
        """Remove the optimizers' hook too. Must not be called while an optimizer iterates over its hooks."""
        self.end()
        self._remove()


# For each module, the function that patches the module if it is loaded. Programs call `torch.save`, so torch itself is patched for saving.
PATCHES: Mapping[str, Callable[[Any], Undo | None]] = {
    "torch.nn.modules.module": hooks.watch_evaluation,
    "torch": hooks.watch_saving,
    "torch.cuda.graphs": hooks.watch_graphs,
    "torch.autograd.profiler": hooks.watch_profilers,
    "torch.autograd.profiler_legacy": hooks.watch_profilers,
    "torch.profiler.profiler": hooks.watch_exports,
    "deepspeed.runtime.engine": hooks.watch_updates,
    "torch.utils.data.dataloader": hooks.watch_batches,
    "torch._dynamo.trace_rules": leave_out_recorder,
}
# These patches time the loader. The second argument of the functions is the folder for the times.
LOADER_PATCHES: Mapping[str, Callable[[Any, Path], Undo]] = {
    "torch.utils.data._utils.fetch": batches.watch,
    "torch.utils.data._utils.pin_memory": batches.watch_pinning,
}
STAYS = (
    "at-fork handlers and empty trace functions in the loop's frames, which do nothing",
    "timers in the loader's iterators and workers of this epoch",
    "TEARDOWN_CUPTI and KINETO_LOG_LEVEL in its environment, if a profile was taken",
)
_current: list[Attachment] = []  # Contains the attachment of this process, or nothing.


class HookAnswer(TypedDict, total=False):
    """Answer of a training to a request; empty after attaching.

    ``stays`` lists what remains loaded after detaching. ``again`` means that an optimizer's hook is running, so the request must be
    repeated. The sender sets ``silent`` if no answer came in time.
    """

    stays: list[str]
    error: str
    again: bool
    silent: bool


def answer_request(settings: Mapping[str, Any]) -> HookAnswer:
    """Attach or detach, according to ``settings["do"]``; return the answer."""
    if _runs_a_hook(sys.modules.get(OPTIMIZER_MODULE)):
        return {"again": True}
    return _attach(settings) if settings["do"] == "attach" else _detach()


def _attach(settings: Mapping[str, Any]) -> HookAnswer:
    optimizers = sys.modules.get(OPTIMIZER_MODULE)
    if not hasattr(optimizers, "register_optimizer_step_post_hook"):
        return {"error": NO_OPTIMIZERS}
    if any(not attached.is_over for attached in _current) or GRAPHS.on_step is not None:
        return {"error": ALREADY_RECORDED.format(pid=os.getpid())}
    _detach()
    variables = {**os.environ, **settings["environment"]}
    ranks_here = environment_number("LOCAL_WORLD_SIZE", variables) or environment_number("WORLD_SIZE", variables) or 1
    if settings["processes"] < ranks_here:
        variables[ONLY_RANK] = "1"  # Some ranks are not recorded, so the ranks cannot agree on the steps to profile.
    attached = Attachment(HookSettings.of(variables))
    _current.append(attached)
    attached.begin(optimizers, variables.get(LOADER) != "0")
    return {}


def _detach() -> HookAnswer:
    while _current:
        _current.pop().remove()
    count = sum(name.startswith(f"{__name__.partition('.')[0]}.") for name in sys.modules)
    return {"stays": [f"{count} modules of the recorder", *STAYS]}


def _runs_a_hook(optimizers: Any) -> bool:
    """Return whether a thread is inside an optimizer's hooks or the recorder's own hook.

    An optimizer's list of hooks must not change while a thread iterates over the list.
    """
    file = getattr(optimizers, "__file__", None)
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            code = frame.f_code
            if code.co_filename == HOOK_FILE or code is ON_EVENT:
                return True
            around_step = code.co_filename == file and code.co_name == "wrapper"
            if around_step and (RESULT_VARIABLE not in code.co_varnames or RESULT_VARIABLE in frame.f_locals):
                return True
            frame = frame.f_back
    return False
