"""Report devices whose operations have a format that is not read, so that they do not look idle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

EXAMPLE_CHARACTERS = 60
# Processes of accelerators whose profilers write operations in their own format, without a category.
DEVICE_PROCESS = re.compile(r"\b(Ascend|NPU|HPU|Gaudi|TPU|MLU|Neuron)", re.IGNORECASE)


def unread_device(process_names: Mapping[str, str], without_category: int) -> dict[str, Any] | None:
    """Return a row of ``diagnostics`` for a device without any read operation.

    None if the trace names no such device, or has no unread event.
    """
    device = next((name for name in process_names.values() if DEVICE_PROCESS.search(name)), None)
    if device is None or not without_category:
        return None
    name = device[:EXAMPLE_CHARACTERS]
    sentence = f"{without_category:,} events without a category were not read, those of “{name}” among them: nothing is known of the device."
    return {"key": "device_not_read", "severity": "error", "sentence": sentence, "count": without_category, "example": name}
