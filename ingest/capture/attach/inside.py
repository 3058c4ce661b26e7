"""What `sawtooth attach` does inside a training: hooks the optimizers and modules that are loaded already, and lets go of all of it again.

``enter.py`` calls ``obey`` between two instructions of the training's main thread, anywhere in its program. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from .. import batches
from ..command import hook as hooks
from ..command.graphs import GRAPHS
from ..command.settings import BY_ITSELF, LOADER, HookSettings
from ..command.signs.choice import Signs
from ..in_process.profilers import PROFILERS
from ..job_place import number_of

LEASE = "attached"  # as injection.py has them; that module is not loaded in here
BEGIN = "begin_ns"
LEASE_NS = 30_000_000_000  # a recorder that is asleep for so long is gone: Ctrl-Z, kill -9
LOOK_NS = 2_000_000_000
OPTIMIZERS = "torch.optim.optimizer"
OWN = hooks.Hook.on_step.__code__.co_filename  # which must not be left in the middle of a step
OF_SIGN = Signs.happens.__code__  # nor this function
STEPPED = "out"  # the variable of PyTorch's function around an optimizer's step that holds what the step returned: the hooks after it come next
NO_OPTIMIZERS = "its PyTorch is still being imported, or is older than 2.1: try again in a few seconds"
ATTACHED = "process {pid} is recorded already, by another sawtooth attach or run"

Leave = Callable[[], object]


class Attachment:
    """The hook in this process. It marks no step before ``begin_ns`` of the folder, and none once nobody renews its lease."""

    def __init__(self, settings: HookSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.hook, self.signs = hooks.hook_and_signs(settings, self.counts)
        self._clock_ns = clock_ns
        self._folder = settings.folder
        self._leaves: list[Leave] = []
        self._begun = False
        self._lease = (0, clock_ns())  # its file's time, and since when that is known
        self._look_ns = 0
        self._remove: Leave = lambda: None
        self.is_over = False

    def on_step(self, optimizer: Any, *rest: Any) -> None:
        """Mark a step as the hook does."""
        if self.counts():
            self.hook.on_step(optimizer, *rest)

    on_step._torchdynamo_disable = True  # type: ignore[attr-defined]  # as the hook's own

    def counts(self) -> bool:
        """Tell whether steps count now: from when all ranks begin until nobody records any more."""
        if self.is_over:
            return False
        try:
            now_ns = self._clock_ns()
            if now_ns >= self._look_ns:
                self._look(now_ns)
        except Exception:  # the training must not notice
            self.end()
        return self._begun and not self.is_over

    def _look(self, now_ns: int) -> None:
        if not self._begun:
            with contextlib.suppress(OSError, ValueError):
                self._begun = now_ns >= int((self._folder / BEGIN).read_text())
        if self._begun:
            self._look_ns = now_ns + LOOK_NS
        with contextlib.suppress(OSError):
            renewed = os.stat(self._folder / LEASE).st_mtime_ns  # noqa: PTH116
            if renewed != self._lease[0]:
                self._lease = renewed, now_ns
        if now_ns - self._lease[1] > LEASE_NS:
            self.end()

    def begin(self, optimizers: Any, time_loader: bool) -> None:
        """Hook what is loaded. What this PyTorch has under another name is left out, and the rest is recorded all the same."""
        handle = optimizers.register_optimizer_step_post_hook(self.on_step)
        self._remove = handle.remove
        GRAPHS.on_step = self.on_step
        self._leaves.append(hooks.finish_at_end(self.signs, self.hook))
        self.signs.watch(optimizers)
        for name, watch in PATCHES.items():
            if name in sys.modules and (time_loader or watch not in LOADERS):
                with contextlib.suppress(Exception):
                    self._leaves.append(watch(sys.modules[name], self._folder))
        PROFILERS.looks(sys.modules["torch"])  # a second profiler would end the training

    def end(self) -> None:
        """Write what is left and take the patches out; what PyTorch may be calling just now does nothing from here on."""
        self.is_over = True
        self.signs.finish()
        self.hook.finish()
        GRAPHS.on_step = None
        while self._leaves:
            with contextlib.suppress(Exception):
                self._leaves.pop()()

    def remove(self) -> None:
        """Take the hook of the optimizers out as well. Never while an optimizer goes through its hooks."""
        self.end()
        self._remove()


def _evaluation(module: Any, _: Path) -> Leave:
    return hooks.watch_evaluation(module)


def _saving(torch: Any, _: Path) -> Leave:
    return hooks.watch_saving(torch)


def _graphs(module: Any, _: Path) -> Leave:
    return hooks.watch_graphs(module)


def _updates(engines: Any, _: Path) -> Leave:
    return hooks.watch_updates(engines)


def _batches(loaders: Any, _: Path) -> Leave:
    hooks.watch_batches(loaders)
    return lambda: None  # the signs take it out when they end


def _loaders(fetchers: Any, folder: Path) -> Leave:
    return batches.watch(fetchers, folder, lambda: sys.modules["torch.utils.data._utils.worker"].get_worker_info())


def _pinning(module: Any, folder: Path) -> Leave:
    return batches.watch_pinning(module, folder)


def _profilers(module: Any, _: Path) -> Leave:
    return hooks.watch_profilers(module)


def _exports(module: Any, _: Path) -> Leave:
    return hooks.watch_exports(module)


# By a loaded module: what is watched in it. `save` is called of torch itself once that is imported.
PATCHES: Mapping[str, Callable[[Any, Path], Leave]] = {
    "torch.nn.modules.module": _evaluation,
    "torch": _saving,
    "torch.cuda.graphs": _graphs,
    "torch.autograd.profiler": _profilers,
    "torch.autograd.profiler_legacy": _profilers,
    "torch.profiler.profiler": _exports,
    "deepspeed.runtime.engine": _updates,
    "torch.utils.data.dataloader": _batches,
    "torch.utils.data._utils.fetch": _loaders,
    "torch.utils.data._utils.pin_memory": _pinning,
}
LOADERS = (_loaders, _pinning)
STAYS = (
    "at-fork handlers and empty trace functions in the loop's frames, which do nothing",
    "timers in the loader's iterators and workers of this epoch",
    "TEARDOWN_CUPTI and KINETO_LOG_LEVEL in its environment, if a profile was taken",
)
_current: list[Attachment] = []  # the one of this process, if there is one


def obey(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Attach or detach as ``settings`` say; return the answer: empty, what stays, {"again": True} where the moment is bad, or an error."""
    if _among_hooks(sys.modules.get(OPTIMIZERS)):
        return {"again": True}
    return _attach(settings) if settings["do"] == "attach" else _detach()


def _attach(settings: Mapping[str, Any]) -> dict[str, Any]:
    optimizers = sys.modules.get(OPTIMIZERS)
    if not hasattr(optimizers, "register_optimizer_step_post_hook"):
        return {"error": NO_OPTIMIZERS}
    if any(not attached.is_over for attached in _current) or GRAPHS.on_step is not None:
        return {"error": ATTACHED.format(pid=os.getpid())}
    _detach()
    variables = {**os.environ, **settings["environment"]}
    here = number_of("LOCAL_WORLD_SIZE", variables) or number_of("WORLD_SIZE", variables) or 1
    if settings["processes"] < here:
        variables[BY_ITSELF] = "1"  # the other ranks are not recorded: there is nobody to agree with on the steps to profile
    attached = Attachment(HookSettings.of(variables))
    _current.append(attached)
    attached.begin(optimizers, variables.get(LOADER) != "0")
    return {}


def _detach() -> dict[str, Any]:
    while _current:
        _current.pop().remove()
    own = sum(name.startswith(f"{__name__.partition('.')[0]}.") for name in sys.modules)
    return {"stays": [f"{own} modules of the recorder", *STAYS]}


def _among_hooks(optimizers: Any) -> bool:
    """Tell whether a thread goes through an optimizer's hooks, whose list must not change meanwhile, or is in the recorder's own hook."""
    file = getattr(optimizers, "__file__", None)
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            code = frame.f_code
            if code.co_filename == OWN or code is OF_SIGN:
                return True
            around_step = code.co_filename == file and code.co_name == "wrapper"
            if around_step and (STEPPED not in code.co_varnames or STEPPED in frame.f_locals):
                return True
            frame = frame.f_back
    return False
