"""torch.profiler over some steps of somebody else's loop: started, stepped, and let go of without harm."""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.devices import name_gpus


def let_go_after_the_profile() -> None:
    """Have PyTorch detach CUPTI where the profile ends, unless somebody chose otherwise.

    CUPTI stays attached else, and every later launch costs more: 48 loops that their hosts limit were 17 % slower in the median for the rest of the
    process, and slower again after a second profile. Where CUDA graphs cannot bear it (before CUDA 12.6), PyTorch sets it back to 0 by itself.
    """
    os.environ.setdefault("TEARDOWN_CUPTI", "1")


class StepProfiler:
    """Profiles ``warmup`` and then ``active`` steps into ``trace``. ``options`` go to torch.profiler.profile."""

    def __init__(self, torch: Any, trace: Path, *, warmup: int, active: int, options: dict[str, Any]) -> None:
        self.trace = trace
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else ())]
        self._profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
            **{"activities": activities, "record_shapes": True, **options},
        )
        let_go_after_the_profile()
        try:
            self._profiler.start()
        except BaseException:  # half of it may run, and would slow every later step
            self.abandon()
            raise
        name_gpus(self._profiler, torch)

    def step(self) -> None:
        """End a profiled step."""
        self._profiler.step()

    def stop(self) -> None:
        """End the profile; the trace is written."""
        self._profiler.stop()

    def abandon(self) -> None:
        """End the profile and keep nothing of it."""
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that its schedule was not kept
            self._profiler.stop()
        self.trace.unlink(missing_ok=True)
