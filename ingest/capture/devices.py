"""GPU UUIDs of a training process and the counters of PyTorch's caching allocator.

UUIDs connect the process with telemetry, because device ordinals can differ. The counters are in the trace's JSON under ALLOCATOR_KEY,
beside the events::

    {"device": 0, "settings": "expandable_segments:True", "began": {"num_alloc_retries": 0, …}, "ended": {"num_alloc_retries": 2, …}}

``began`` and ``ended`` are the STATISTICS of ``torch.cuda.memory_stats`` at the profile's begin and end: bytes, and counts since the
process began. A peak is the largest value since the process began, or since the training reset the peaks. ``settings`` is the value of
the first variable in SETTINGS that is set. If none is set, ``settings`` is absent.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

# A trace's JSON has this entry beside the events. It maps the ordinal of each device in the process to NVML's UUID.
UUIDS_KEY = "gpu_uuids"
ALLOCATOR_KEY = "cuda_allocator"
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # PyTorch before 2.9 uses the second name.
STATISTICS = (
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    *(f"{kind}_bytes.all.{when}" for kind in ("allocated", "reserved", "inactive_split") for when in ("current", "peak")),
)
MAX_CHARACTERS = 200  # Longer settings are cut, so that the trace stays small.


def gpu_uuids(torch: Any) -> dict[str, str]:
    """Return the UUID of each visible device by ordinal.

    The result is empty if PyTorch has not used a GPU yet. PyTorch before 2.5 has no UUIDs.
    """
    uuids: dict[str, str] = {}
    with contextlib.suppress(Exception):  # Errors of the recorder must not end a training.
        for ordinal in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
            uuid = str(getattr(torch.cuda.get_device_properties(ordinal), "uuid", "") or "")
            if uuid:
                uuids[str(ordinal)] = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return uuids


def current_gpu(torch: Any) -> str | None:
    """Return the UUID of this process's current device; None if ``gpu_uuids`` does not know it."""
    uuids = gpu_uuids(torch)
    return uuids.get(str(torch.cuda.current_device())) if uuids else None


def name_gpus(profiler: Any, torch: Any) -> None:
    """Write the devices' UUIDs into the trace of a running profiler."""
    with contextlib.suppress(Exception):
        if uuids := gpu_uuids(torch):
            profiler.add_metadata_json(UUIDS_KEY, json.dumps(uuids))


class AllocatorNotes:
    """Allocator counters at the begin and end of a profile. Reading them does not wait for the GPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._began = self._statistics()

    def write(self, profiler: Any) -> None:
        """Write the counters into the trace of a profiler that still runs, if the process uses a GPU."""
        with contextlib.suppress(Exception):  # Errors of the recorder must not end a training.
            if not self._began:
                return
            notes: dict[str, Any] = {
                "device": self._torch.cuda.current_device(),
                "began": self._began,
                "ended": self._statistics(),
            }
            if settings := next(filter(None, map(os.environ.get, SETTINGS)), None):
                notes["settings"] = settings[:MAX_CHARACTERS]
            profiler.add_metadata_json(ALLOCATOR_KEY, json.dumps(notes))

    def _statistics(self) -> dict[str, int]:
        with contextlib.suppress(Exception):
            if self._torch.cuda.is_initialized():
                known = self._torch.cuda.memory_stats()
                return {name: int(known[name]) for name in STATISTICS if name in known}
        return {}
