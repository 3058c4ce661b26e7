"""Track which PyTorch profiler runs in this process.

PyTorch allows one profiler at a time, and crashes if a second one starts. ``watch`` wraps the few functions of torch.autograd.profiler
that every profiler calls: torch.profiler, autograd's profiler, emit_nvtx and emit_itt. The profilers of Lightning and Hugging Face use
these. The recorder's profile ends before another profiler starts. Standard library only.
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
from .kineto import Detaching, Silence

BEGIN_FUNCTIONS = ("_prepare_profiler", "_run_on_profiler_start", "_enable_profiler", "_enable_profiler_legacy")
END_FUNCTIONS = ("_disable_profiler", "_disable_profiler_legacy")
MAX_PATHS = 3  # Only the paths of the latest exported traces are stored.
# Tools set these variables in the environment of a process whose CUDA calls they follow. CUPTI allows only one user, and PyTorch's profiler
# needs CUPTI for kernels. SGLang, GROMACS and traccc check the same variables. NVIDIA documents only CUDA_INJECTION64_PATH.
# NV_TPS_LAUNCH_TOKEN is not checked, because Nsight Graphics sets it too.
TOOL_VARIABLES = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute",
    "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN": "Compute Sanitizer",
    "NVPROF_ID": "nvprof",
}
PRELOADED_LIBRARIES = {"ToolsInjection": "Nsight Systems", "TreeLauncher": "Nsight Compute"}  # LD_PRELOAD contains these names.
INJECTION_VARIABLE = "CUDA_INJECTION64_PATH"  # The variable has the path of a tool that CUDA loads. "none" means no tool.


def cuda_tool(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the tool that already uses CUPTI, according to the environment; None without one."""
    by_variable = (tool for name, tool in TOOL_VARIABLES.items() if environment.get(name))
    preloaded = (tool for part, tool in PRELOADED_LIBRARIES.items() if part in environment.get("LD_PRELOAD", ""))
    any_tool = ("a CUDA tool",) if environment.get(INJECTION_VARIABLE, "none") not in ("", "none") else ()
    return next(iter((*by_variable, *preloaded, *any_tool)), None)


class Profilers:
    """The profilers of this process.

    ``ours`` is the recorder's running profile. ``left`` is the same profile after a thread that cannot end it has tried to. ``other`` is
    true while another profiler is prepared or runs. ``began`` counts the other profilers, and ``exported`` has the paths of their traces.
    """

    def __init__(self) -> None:
        self.ours: Any = None
        self.left: Any = None
        self.other = False
        self.began = 0
        self.exported: list[str] = []
        self.has_profiled = False  # whether a profile of the recorder began in this process
        self.detaching, self.silence = Detaching(), Silence()
        self._us = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_ours)

    def _forget_ours(self) -> None:
        self.ours = self.left = None  # The profile belongs to the parent process.
        self.detaching.forget()
        if self.has_profiled:
            skip_destructors()

    @property
    def busy(self) -> bool:
        """Return whether a profiler is running, so that the recorder cannot start one."""
        return self.other or self.ours is not None

    def ended_ours(self) -> None:
        """Record that the recorder's profile has ended."""
        self.ours = self.left = None
        self.detaching.end()

    def end_left(self) -> None:
        """Discard the profile that another thread could not end, if this is its thread."""
        if self.left is not None:
            self.left.abandon()

    @contextlib.contextmanager
    def by_us(self) -> Iterator[None]:
        """Mark profilers that begin or end inside this context as those of the recorder."""
        before = getattr(self._us, "inside", False)
        self._us.inside = self.has_profiled = True
        try:
            yield
        finally:
            self._us.inside = before

    def watch(self, module: Any) -> Callable[[], None]:
        """Follow the profilers of ``module``; return a function that ends this.

        ``module`` is torch.autograd.profiler or torch.autograd.profiler_legacy.
        """
        with contextlib.ExitStack() as leave:
            for name in (*BEGIN_FUNCTIONS, *END_FUNCTIONS):
                if hasattr(module, name):
                    leave.callback(shared.watch(module, name, self, _beginning if name in BEGIN_FUNCTIONS else _ending))
            exporting = getattr(module, "profile", None)
            if hasattr(exporting, "export_chrome_trace"):
                leave.callback(shared.watch(exporting, "export_chrome_trace", self, _exporting))
            return leave.pop_all().close

    def watch_exports(self, module: Any) -> Callable[[], None]:
        """Record paths of traces that torch.profiler writes; return a function that ends this.

        ``module`` is torch.profiler.profiler.
        """
        return shared.watch(module._KinetoProfile, "export_chrome_trace", self, _exporting)

    def begins(self) -> None:
        """Record that a profiler begins. If it is another profiler, the recorder's profile ends first."""
        if getattr(self._us, "inside", False) or self.other:
            return
        self.other, ours = True, self.ours
        self.began += 1
        if ours is not None:
            self.detaching.leave_attached()
            ours.interrupt()
        else:
            self.detaching.settle(sys.modules.get("torch"))
        self.silence.end()

    def ends(self) -> None:
        """Record that a profiler has ended."""
        if not getattr(self._us, "inside", False):
            self.other = False

    def writes(self, path: Any) -> None:
        """Record the path of a trace that another profiler writes."""
        if not getattr(self._us, "inside", False):
            path = os.path.abspath(path)  # noqa: PTH100 - the training may change its folder later
            self.exported = [*(known for known in self.exported if known != path), path][-MAX_PATHS:]

    def find_running(self, torch: Any) -> None:
        """Note another profiler that began before ``watch``, if one runs on this thread or is being prepared."""
        self.other = False  # A profiler that was followed in an earlier recording may have ended since.
        with contextlib.suppress(Exception):
            kind = torch.autograd.profiler.profile
            prepared = (p for p in gc.get_objects() if type(p) is kind and p.entered and p.kineto_results is None)
            if torch.autograd._profiler_enabled() or any(p.enabled for p in prepared):
                self.begins()


def _beginning(begin: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def begun(*arguments: Any, **named: Any) -> Any:
        for profilers in watchers[:1]:  # All watchers are the same object, the one of this process.
            with contextlib.suppress(Exception):
                profilers.begins()
        return begin(*arguments, **named)

    return begun


def _ending(end: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def ended(*arguments: Any, **named: Any) -> Any:
        try:
            return end(*arguments, **named)
        finally:
            for profilers in watchers[:1]:
                profilers.ends()

    return ended


def _exporting(export: Callable[..., Any], watchers: list[Profilers]) -> Callable[..., Any]:
    def exported(profiler: Any, path: Any, *arguments: Any, **named: Any) -> Any:
        for profilers in watchers[:1]:
            with contextlib.suppress(Exception):
                profilers.writes(path)
        return export(profiler, path, *arguments, **named)

    return exported


PROFILERS: Profilers = shared.process_wide("profilers", Profilers)


def follow(torch: Any) -> Callable[[], None]:
    """Follow all profilers of ``torch``, even one that already runs; return a function that ends this."""
    leave = contextlib.ExitStack()
    with contextlib.suppress(Exception):  # Tests may replace torch, and another PyTorch may have other functions.
        module = torch.autograd.profiler
        followed = hasattr(module._enable_profiler, shared.WATCHERS)
        for each in (module, sys.modules.get("torch.autograd.profiler_legacy")):
            if each is not None:
                leave.callback(PROFILERS.watch(each))
        leave.callback(PROFILERS.watch_exports(torch.profiler.profiler))
        if not followed:
            PROFILERS.find_running(torch)
    return leave.close
