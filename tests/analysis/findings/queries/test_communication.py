"""Tests of the slowdown of kernels that run while collectives do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sawtooth.analysis.findings.queries.communication import overlap_delay_share


@pytest.mark.parametrize(("gpu", "shares"), [(SimpleNamespace(sms=132), [24 / 132, 0.0, 1.0]), (None, [0.0, 0.0, 0.0])])
def test_a_collective_occupies_one_multiprocessor_per_block(gpu: Any, shares: list[float]) -> None:
    context: Any = SimpleNamespace(rank=SimpleNamespace(gpu=gpu))
    rows = pd.DataFrame({"blocks": pd.array([24, None, 500], dtype="Int64")})
    assert overlap_delay_share(context, rows).tolist() == pytest.approx(shares)
