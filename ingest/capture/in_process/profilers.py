"""Track which PyTorch profiler runs in this process.

PyTorch allows one profiler at a time, and crashes if a second one starts. So the recorder's profile ends before another profiler starts.
``watch`` wraps the few functions of torch.autograd.profiler that every profiler calls: torch.profiler, autograd's profiler, emit_nvtx and
emit_itt. The profilers of Lightning and Hugging Face call torch.profiler or autograd's profiler. Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import shared
from .exit_actions import skip_destructors
from .kineto import Detaching, SilentKineto

BEGIN_FUNCTIONS = ("_prepare_profiler", "_run_on_profiler_start", "_enable_profiler", "_enable_profiler_legacy")
END_FUNCTIONS = ("_disable_profiler", "_disable_profiler_legacy")
MAX_PATHS = 3  # Only the paths of the latest exported traces are stored.
# A tool that records the CUDA calls of a process sets one of these variables there. The tool uses CUPTI, which allows only one user, so
# PyTorch's profiler records no kernels. SGLang, GROMACS and traccc check the same variables. NVIDIA documents only CUDA_INJECTION64_PATH.
# NV_TPS_LAUNCH_TOKEN is not checked, because Nsight Graphics sets it too.
TOOL_VARIABLES = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute",
    "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN": "Compute Sanitizer",
    "NVPROF_ID": "nvprof",
}
PRELOADED_LIBRARIES = {"ToolsInjection": "Nsight Systems", "TreeLauncher": "Nsight Compute"}  # LD_PRELOAD contains these names.
INJECTION_VARIABLE = "CUDA_INJECTION64_PATH"  # This variable has the path of a tool that CUDA loads. "none" means no tool.


def cuda_tool(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the tool that already uses CUPTI, according to the environment; None without one."""
    by_variable = (tool for name, tool in TOOL_VARIABLES.items() if environment.get(name))
    preloaded = (tool for part, tool in PRELOADED_LIBRARIES.items() if part in environment.get("LD_PRELOAD", ""))
    any_tool = ("a CUDA tool",) if environment.get(INJECTION_VARIABLE, "none") not in ("", "none") else ()
    return next(iter((*by_variable, *preloaded, *any_tool)), None)


class Profilers:
    """The profilers of this process.

    ``ours`` is the recorder's running profile. ``stopping`` is the same profile after a thread that cannot end the profile called ``stop``.
    ``other_runs`` is true while another profiler is prepared or runs. ``other_count`` is the number of other profilers so far, and
    ``exported`` has the paths of their traces.
    """

    def __init__(self) -> None:
        self.ours: Any = None
        self.stopping: Any = None
        self.other_runs = False
        self.other_count = 0
        self.exported: list[str] = []
        self.has_profiled = False  # Whether a profile of the recorder began in this process.
        self.detaching, self.silence = Detaching(), SilentKineto()
        self._thread_state = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_ours)

    def _forget_ours(self) -> None:
        self.ours = self.stopping = None  # The profile belongs to the parent process.
        self.detaching.forget()
        if self.has_profiled:
            skip_destructors()

    @property
    def busy(self) -> bool:
        """Return whether a profiler is running, so that the recorder cannot start one."""
        return self.other_runs or self.ours is not None

    def note_end_of_ours(self) -> None:
        """Note that the recorder's profile has ended."""
        self.ours = self.stopping = None
        self.detaching.end()

    def discard_stopping(self) -> None:
        """Discard the profile that another thread could not end, if this thread began the profile."""
        if self.stopping is not None:
            self.stopping.abandon()

    @contextlib.contextmanager
    def as_recorder(self) -> Iterator[None]:
        """Mark profilers that begin or end inside this context as those of the recorder."""
        before = getattr(self._thread_state, "inside", False)
        self._thread_state.inside = self.has_profiled = True
        try:
            yield
        finally:
            self._thread_state.inside = before

    def watch(self, module: Any) -> Callable[[], None]:
        """Follow the profilers of ``module``; return a function that ends this.

        ``module`` is torch.autograd.profiler or torch.autograd.profiler_legacy.
        """
        with contextlib.ExitStack() as stack:
            for name in (*BEGIN_FUNCTIONS, *END_FUNCTIONS):
                if hasattr(module, name):
                    stack.callback(shared.watch(module, name, self, _noting_begin if name in BEGIN_FUNCTIONS else _noting_end))
            profile = getattr(module, "profile", None)
            if hasattr(profile, "export_chrome_trace"):
                stack.callback(shared.watch(profile, "export_chrome_trace", self, _noting_export))
            return stack.pop_all().close

    def watch_exports(self, module: Any) -> Callable[[], None]:
        """Note the paths of traces that torch.profiler writes; return a function that ends this.

        ``module`` is torch.profiler.profiler.
        """
        return shared.watch(module._KinetoProfile, "export_chrome_trace", self, _noting_export)

    def note_begin(self) -> None:
        """Note that a profiler begins. The recorder's profile ends before a profiler of the training begins."""
        if getattr(self._thread_state, "inside", False) or self.other_runs:
            return
        self.other_runs, ours = True, self.ours
        self.other_count += 1
        if ours is not None:
            self.detaching.leave_attached()
            ours.interrupt()
        else:
            self.detaching.finish(sys.modules.get("torch"))
        self.silence.end()

    def note_end(self) -> None:
        """Note that a profiler has ended."""
        if not getattr(self._thread_state, "inside", False):
            self.other_runs = False

    def note_export(self, path: Any) -> None:
        """Note the path of a trace that another profiler writes."""
        if not getattr(self._thread_state, "inside", False):
            path = os.path.abspath(path)  # noqa: PTH100 - the training may change its folder later
            self.exported = [*(known for known in self.exported if known != path), path][-MAX_PATHS:]

    def find_running(self, torch: Any) -> None:
        """Note another profiler that began before ``watch``, if one runs on this thread or is being prepared."""
        self.other_runs = False  # A profiler that was followed in an earlier recording may have ended since.
        with contextlib.suppress(Exception):
            kind = torch.autograd.profiler.profile
            prepared = (p for p in gc.get_objects() if type(p) is kind and p.entered and p.kineto_results is None)
            if torch.autograd._profiler_enabled() or any(p.enabled for p in prepared):
                self.note_begin()


def _noting_begin(begin: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def note_and_begin(*arguments: Any, **named: Any) -> Any:
        for profilers in watchers[:1]:  # All watchers are the same object, because a process has one.
            with contextlib.suppress(Exception):
                profilers.note_begin()
        return begin(*arguments, **named)

    return note_and_begin


def _noting_end(end: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def end_and_note(*arguments: Any, **named: Any) -> Any:
        try:
            return end(*arguments, **named)
        finally:
            for profilers in watchers[:1]:
                profilers.note_end()

    return end_and_note


def _noting_export(export: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def note_and_export(profiler: Any, path: Any, *arguments: Any, **named: Any) -> Any:
        for profilers in watchers[:1]:
            with contextlib.suppress(Exception):
                profilers.note_export(path)
        return export(profiler, path, *arguments, **named)

    return note_and_export


PROFILERS: Profilers = shared.process_wide("profilers", Profilers)


def follow(torch: Any) -> Callable[[], None]:
    """Follow all profilers of ``torch``, even one that already runs; return a function that ends this."""
    stack = contextlib.ExitStack()
    with contextlib.suppress(Exception):  # Tests may replace torch, and another PyTorch may have other functions.
        module = torch.autograd.profiler
        is_followed = hasattr(module._enable_profiler, shared.WATCHERS)
        stack.callback(PROFILERS.watch(module))
        if (legacy_module := sys.modules.get("torch.autograd.profiler_legacy")) is not None:
            stack.callback(PROFILERS.watch(legacy_module))
        stack.callback(PROFILERS.watch_exports(torch.profiler.profiler))
        if not is_followed:
            PROFILERS.find_running(torch)
    return stack.close
