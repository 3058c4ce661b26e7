"""Detection of the outermost module that a program calls repeatedly, and of its calls.

Standard library only.

A global hook would take microseconds per call of any module and would make torch.compile compile again. Instead, another thread searches the
main thread's stack from time to time to find the module. PyTorch has an attribute for the compiled call of a module; this attribute is set
to a function that notes the call. Compiled code does not read the attribute, and copies and pickles of the module do not contain it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import ref

MIN_CALLS = 3  # At least this many different calls of a module must be found, because one long call is not a loop.
CALL_ATTRIBUTE = "_compiled_call_impl"


class _CallMark:
    """A mark of a counted call. It is stored as the frame's trace function, which is otherwise unused."""

    def __call__(self, *_: object) -> None:
        """Do nothing. A debugger that is started later may call the mark as a trace function."""


_CALL_MARK = _CallMark()


class OutermostModule:
    """The outermost module. After ``search`` finds it, ``on_call`` runs after each call until ``release``."""

    def __init__(self, module_class: Any, on_call: Callable[[], None]) -> None:
        self._code = module_class.__call__.__code__
        self._loaders = str(Path(sys.modules[module_class.__module__].__file__ or "").parents[2] / "utils" / "data")
        self._on_call = on_call
        # By the id of a module: a reference to the module, and the number of counted calls.
        self._calls: dict[int, tuple[Any, int]] = {}
        self._module: Any = lambda: None
        self._patched_call: Any = None
        self.name = ""

    def search(self) -> None:
        """Search the main thread's stack once. Another thread must call this method."""
        frame = self._outermost(sys._current_frames().get(threading.main_thread().ident or 0))
        if frame is None or isinstance(frame.f_trace, _CallMark):
            return
        if frame.f_trace is None:
            frame.f_trace = _CALL_MARK
        module = frame.f_locals.get("self")
        if module is None:
            return
        counted_module, calls = self._calls.get(id(module), (None, 0))
        calls = calls + 1 if counted_module is not None and counted_module() is module else 1
        self._calls[id(module)] = ref(module), calls
        if calls >= MIN_CALLS:
            self._patch_calls(module)

    def _outermost(self, frame: FrameType | None) -> FrameType | None:
        """Return the frame of the outermost call of a module that has parameters or buffers.

        Modules without parameters and buffers transform data or compute a loss. Modules that a loader's dataset calls do not count.
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
        """Return whether a module was found, still exists, and still has the patched call."""
        module = self._module()
        return module is not None and module.__dict__.get(CALL_ATTRIBUTE) is self._patched_call

    def _patch_calls(self, module: Any) -> None:
        compiled = module.__dict__.get(CALL_ATTRIBUTE)
        module_ref, call, on_call = ref(module), type(module)._call_impl, self._on_call
        inside = False

        def patched_call(*arguments: Any, **named: Any) -> Any:
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

        self._original_call = compiled
        self.name = _class_name(module)
        self._module, self._patched_call = module_ref, patched_call
        module.__dict__[CALL_ATTRIBUTE] = patched_call

    def release(self) -> None:
        """Restore the module, so that its calls are not patched any more."""
        if self.is_found:
            module = self._module()
            if self._original_call is None:
                del module.__dict__[CALL_ATTRIBUTE]
            else:
                module.__dict__[CALL_ATTRIBUTE] = self._original_call
        self._module = lambda: None
        self._calls.clear()


def _has_state(module: Any) -> bool:
    """Return whether a module or a module inside it has parameters or buffers."""
    return module is not None and any(part._parameters or part._buffers for part in module.modules())


def _class_name(module: Any) -> str:
    """Return a module's class name, without wrappers of torch.compile or DistributedDataParallel."""
    inner = module._modules.get("_orig_mod") or module._modules.get("module")
    is_wrapper = type(module).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel")
    return _class_name(inner) if is_wrapper and inner is not None else type(module).__name__
