"""The Efficiency screen's tables per step: operators that miss tensor cores, and operators under the roof."""

from __future__ import annotations

import pandas as pd

from analysis import efficiency
from analysis.hardware import Gpu
from analysis.recordings import Recording
from analysis.tables import shapes_text


def missed_tensor_cores(recording: Recording, device: int, gpu: Gpu | None, counted_steps: int) -> pd.DataFrame:
    """Return ``analysis.efficiency.tensor_core_table`` with times in ms per step (of the trace without steps) and shapes as people write them."""
    table = efficiency.tensor_core_table(recording, device, gpu)
    per = max(counted_steps, 1)
    times = {f"{name}_ms": table[f"{name}_ns"] / 1e6 / per for name in ("with", "without", "helper", "unknown")}
    return table.assign(shapes=table["input_dims"].map(shapes_text), **times)


def roofline(recording: Recording, device: int, gpu: Gpu | None, counted_steps: int) -> pd.DataFrame:
    """Return ``analysis.efficiency.roofline_table`` with ms and opportunity_ms per step (of the trace without steps)."""
    table = efficiency.roofline_table(recording, device, gpu)
    per = max(counted_steps, 1)
    return table.assign(
        shapes=table["input_dims"].map(shapes_text),
        ms=table["time_ns"].astype(float) / 1e6 / per,
        opportunity_ms=table["opportunity_ns"].astype(float) / 1e6 / per,
    )
