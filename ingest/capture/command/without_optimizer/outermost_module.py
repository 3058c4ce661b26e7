"""Detection of the outermost module that a program calls repeatedly, and of its calls.

Standard library only.

A global hook would take microseconds per call of any module and would make torch.compile compile again. Instead, another thread looks at the main
thread's stack from time to time to find the module. Its calls are then noticed through an attribute that PyTorch has for compiled calls. Compiled
code does not read this attribute, and copies and pickles of the module do not contain it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import ref

MIN_CALLS_SEEN = 3  # At least this many different calls of a module must be seen, because one long call is not a loop.
CALL_ATTRIBUTE = "_compiled_call_impl"


class _Seen:
    """A mark of a call's frame that was seen. It is stored as the frame's unused trace function."""

    def __call__(self, *_: object) -> None:
        """Do nothing. A debugger that is started later may call the mark as a trace function."""


_SEEN = _Seen()


class OutermostModule:
    """The outermost module: ``look`` finds it, then ``on_call`` runs after its calls until ``leave``."""

    def __init__(self, module_class: Any, on_call: Callable[[], None]) -> None:
        self._code = module_class.__call__.__code__
        self._loaders = str(Path(sys.modules[module_class.__module__].__file__ or "").parents[2] / "utils" / "data")
        self._on_call = on_call
        # By id of a module: a reference to it, and the number of its calls that were seen.
        self._seen: dict[int, tuple[Any, int]] = {}
        self._module: Any = lambda: None
        self._noticed: Any = None
        self.name = ""

    def look(self) -> None:
        """Look at the main thread's stack once. Call it from another thread."""
        frame = self._outermost(sys._current_frames().get(threading.main_thread().ident or 0))
        if frame is None or isinstance(frame.f_trace, _Seen):
            return
        if frame.f_trace is None:
            frame.f_trace = _SEEN
        module = frame.f_locals.get("self")
        if module is None:
            return
        known, times = self._seen.get(id(module), (None, 0))
        times = times + 1 if known is not None and known() is module else 1
        self._seen[id(module)] = ref(module), times
        if times >= MIN_CALLS_SEEN:
            self._notice(module)

    def _outermost(self, frame: FrameType | None) -> FrameType | None:
        """Return the frame of the outermost call of a module that has parameters or buffers.

        Modules without them transform data or compute a loss. Modules that a loader's dataset calls do not count.
        """
        calls: list[FrameType] = []
        while frame is not None:
            if frame.f_code is self._code:
                calls.append(frame)
            elif calls and frame.f_code.co_filename.startswith(self._loaders):
                calls.clear()
            frame = frame.f_back
        return next((call for call in reversed(calls) if _has_state(call.f_locals.get("self"))), None)

    @property
    def is_found(self) -> bool:
        """Return whether a module was found that still exists and whose calls are noticed."""
        module = self._module()
        return module is not None and module.__dict__.get(CALL_ATTRIBUTE) is self._noticed

    def _notice(self, module: Any) -> None:
        compiled = module.__dict__.get(CALL_ATTRIBUTE)
        module_ref, call, on_call = ref(module), type(module)._call_impl, self._on_call
        inside = False

        def noticed(*arguments: Any, **named: Any) -> Any:
            nonlocal inside
            if inside:
                return compiled(*arguments, **named) if compiled is not None else call(module_ref(), *arguments, **named)
            inside = True
            try:
                result = compiled(*arguments, **named) if compiled is not None else call(module_ref(), *arguments, **named)
            finally:
                inside = False
            on_call()
            return result

        self._before = compiled
        self.name = _name(module)
        self._module, self._noticed = module_ref, noticed
        module.__dict__[CALL_ATTRIBUTE] = noticed

    def leave(self) -> None:
        """Stop noticing calls and restore the module."""
        if self.is_found:
            module = self._module()
            if self._before is None:
                del module.__dict__[CALL_ATTRIBUTE]
            else:
                module.__dict__[CALL_ATTRIBUTE] = self._before
        self._module = lambda: None
        self._seen.clear()


def _has_state(module: Any) -> bool:
    """Return whether a module or a module inside it has parameters or buffers."""
    return module is not None and any(each._parameters or each._buffers for each in module.modules())


def _name(module: Any) -> str:
    """Return a module's class name, without wrappers of torch.compile or DistributedDataParallel."""
    inner = module._modules.get("_orig_mod") or module._modules.get("module")
    wrapper = type(module).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel")
    return _name(inner) if wrapper and inner is not None else type(module).__name__
