"""Tests of the lists below the timeline on a phone."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.app.page import frame
from sawtooth.app.page.timeline import narrow


def test_operations_and_waits_are_rows_of_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "is_dark", lambda: False)
    work = pd.DataFrame(
        {"short": ["gemm", "add"], "kind": ["tensor_core_compute", "other_compute"], "ms": [4.0, 1.0], "operations": [20, 3]}
    )
    rows = narrow.rows(work, {})
    assert [(row.name, row.value.replace("\u00a0", " "), row.bar, row.kind) for row in rows] == [
        ("gemm", "4.00 ms · 20 ×", "100.0%", "tensor-core compute"), ("add", "1.00 ms · 3 ×", "25.0%", "other compute"),
    ]  # fmt: skip
    waits = pd.DataFrame({"at_ms": [30.0], "ms": [2.0], "cause": ["data_wait"], "operator": ["enumerate"], "python": [None]})
    (wait,) = narrow.rows(waits, {"data_wait": "loader"})
    assert (wait.name, wait.value.replace("\u00a0", " "), wait.kind) == ("enumerate", "2.00 ms at 30.0 ms", "loader")
    placeless = waits.assign(operator=None, phase="forward")
    (wait,) = narrow.rows(placeless, {"data_wait": "loader"})
    assert (wait.name, wait.kind) == ("loader", "forward")  # The cause does not appear twice.
    assert len(narrow.rows(pd.concat([work] * 9), {})) == narrow.SHOWN
