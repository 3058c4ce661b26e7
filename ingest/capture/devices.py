"""Which GPUs a training process sees, by the name that telemetry knows them by too: their UUID. Ordinals differ, UUIDs do not."""

from __future__ import annotations

import contextlib
import json
from typing import Any

TRACE_KEY = "gpu_uuids"  # in a trace's JSON, beside its events: ordinal of the device in the process, UUID as NVML writes it


def gpu_uuids(torch: Any) -> dict[str, str]:
    """Return the UUID of each visible device by ordinal; empty where PyTorch has not used a GPU yet, or does not know (before 2.5)."""
    uuids: dict[str, str] = {}
    with contextlib.suppress(Exception):  # nothing here may end a training
        for ordinal in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
            uuid = str(getattr(torch.cuda.get_device_properties(ordinal), "uuid", "") or "")
            if uuid:
                uuids[str(ordinal)] = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return uuids


def current_gpu(torch: Any) -> str | None:
    """Return the UUID of the device that this process computes on, None where ``gpu_uuids`` does not know."""
    uuids = gpu_uuids(torch)
    return uuids.get(str(torch.cuda.current_device())) if uuids else None


def name_gpus(profiler: Any, torch: Any) -> None:
    """Write the devices' UUIDs into the trace of a running profiler."""
    with contextlib.suppress(Exception):
        if uuids := gpu_uuids(torch):
            profiler.add_metadata_json(TRACE_KEY, json.dumps(uuids))
