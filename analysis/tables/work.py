"""The Efficiency screen's tables per step: operators that miss tensor cores, and operators under the roof."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import efficiency
from sawtooth.analysis.tables.kernels import shapes_text


def missed_tensor_cores(rank: RankView) -> pd.DataFrame:
    """Return ``sawtooth.analysis.tables.efficiency.tensor_core_table`` with times in ms per step (of the trace without steps) and shapes as people write them."""
    table = efficiency.tensor_core_table(rank)
    times = {f"{name}_ms": table[f"{name}_ns"] / 1e6 / rank.per for name in ("with", "without", "helper", "unknown")}
    return table.assign(shapes=table["input_dims"].map(shapes_text), **times)


def roofline(rank: RankView) -> pd.DataFrame:
    """Return ``sawtooth.analysis.tables.efficiency.roofline_table`` with ms and opportunity_ms per step (of the trace without steps)."""
    table = efficiency.roofline_table(rank)
    return table.assign(
        shapes=table["input_dims"].map(shapes_text),
        ms=table["time_ns"].astype(float) / 1e6 / rank.per,
        opportunity_ms=table["opportunity_ns"].astype(float) / 1e6 / rank.per,
    )
