"""Tests of the text of the rows of a step's GPU work."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import count_in_words


def test_copies_are_not_kernels() -> None:
    rows = pd.DataFrame({"kind": ["kernel", "kernel", "memcpy", "kernel"]})
    assert count_in_words(rows, 2) == "2 GPU operations"
    assert count_in_words(rows[rows["kind"] == "kernel"], 3) == "1 kernel"
