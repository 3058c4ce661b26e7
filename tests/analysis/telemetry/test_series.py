"""Telemetry as lines: what the picture of one tooth is made of."""

import numpy as np
import pandas as pd

from sawtooth.analysis.tables.timeline import Span
from sawtooth.analysis.telemetry.clock import AS_RECORDED
from sawtooth.analysis.telemetry.series import Telemetry, folded

BASE = 1_790_000_000_000_000_000  # ns


def test_all_periods_lie_on_each_other_at_their_rises() -> None:
    """Ten samples a second, high for three of every ten: the fold is high for 0.3 s after the rise and low before and after it."""
    time = BASE + np.arange(400, dtype=np.int64) * 100_000_000
    value = np.where(np.arange(400) % 10 < 3, 90.0, 5.0)
    told = Telemetry(
        0,
        None,
        AS_RECORDED,
        Span(BASE, BASE + 40_000_000_000),
        pd.DataFrame({"time_ns": time, "util_pct": value}),
        pd.DataFrame(),
        pd.DataFrame(),
    )
    table = folded(told, 1.0, 5.0, 90.0, "util_pct")
    at = {round(float(t), 1): float(m) for t, m in zip(table["after_s"], table["median"], strict=True)}
    assert at[0.0] == at[0.1] == at[0.2] == 90.0
    assert at[0.4] == at[0.8] == at[-0.1] == 5.0
    assert (table["p10"] <= table["p90"]).all()
