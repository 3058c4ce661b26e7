"""Periodic telemetry in the format of the sampler's file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.chrome_trace import BASE_NS


def telemetry_file(path: Path, samples: int = 60, start_ns: int = BASE_NS, hole: bool = False, low: int = 0) -> Path:
    """Write ten samples per second that alternate between ``low`` and 100 % every half second."""
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    for i in range(samples):
        if hole and 20 <= i < 40:
            continue
        lines.append(
            {
                "t_ns": start_ns + i * 100_000_000,
                "gpu_util": 100 if i // 5 % 2 else low,
                "power_w": 300.0 + i,
                "sm_mhz": 1980,
                "throttle": 4 if 10 <= i < 20 else 0,
            }
        )
    path.write_text("\n".join(map(json.dumps, lines)))
    return path
