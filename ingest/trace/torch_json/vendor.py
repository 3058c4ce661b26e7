"""Detection of the manufacturer of a trace's GPUs."""

from __future__ import annotations

import re

from sawtooth.ingest.trace.torch_json.tables import TorchTrace

MTIA_CALL = "runFunction - job_prep"  # The names of calls of Meta's accelerator begin with this text.


def find_vendor(trace: TorchTrace) -> str | None:
    """Return the manufacturer of the GPUs, from versions, device names, or runtime calls."""
    metadata = trace.document.metadata
    listed = metadata.get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    names = " ".join(str(device.get("name", "")) for device in devices).lower()
    hip = any(name.startswith("hip") for name in trace.ids["names"])
    signs = (
        (
            "amd",
            "roctracer_version" in metadata
            or "hip_runtime_version" in metadata
            or hip
            or re.search(r"amd|radeon|instinct", names),
        ),
        (
            "nvidia",
            "cupti_version" in metadata
            or "cuda_runtime_version" in metadata
            or re.search(r"nvidia|tesla|geforce|quadro|rtx", names),
        ),
        ("intel", re.search(r"intel|xpu", names)),
        ("meta", re.search(r"artemis|mtia", names) or any(name.startswith(MTIA_CALL) for name in trace.ids["names"])),
        ("huawei", "ascend" in names),
        ("nvidia", any(name.startswith(("cudaLaunch", "cudaMemcpy", "cuLaunch")) for name in trace.ids["names"])),
    )
    return next((vendor for vendor, sign in signs if sign), None)
