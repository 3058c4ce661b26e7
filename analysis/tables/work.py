"""The Efficiency page's tables per step: operators that miss tensor cores, and the roofline."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import efficiency
from sawtooth.analysis.tables.kernels import shapes_text


def missed_tensor_cores(rank: RankView) -> pd.DataFrame:
    """Return ``efficiency.tensor_core_table`` with readable shapes and ms per step."""
    table = efficiency.tensor_core_table(rank)
    times = {f"{name}_ms": table[f"{name}_ns"] / 1e6 / rank.step_divisor for name in ("with", "without", "helper", "unknown")}
    return table.assign(shapes=table["input_dims"].map(shapes_text), **times)


def roofline(rank: RankView) -> pd.DataFrame:
    """Return ``efficiency.roofline_table`` with ms and opportunity_ms per step."""
    table = efficiency.roofline_table(rank)
    return table.assign(
        shapes=table["input_dims"].map(shapes_text),
        ms=table["time_ns"].astype(float) / 1e6 / rank.step_divisor,
        opportunity_ms=table["opportunity_ns"].astype(float) / 1e6 / rank.step_divisor,
    )
