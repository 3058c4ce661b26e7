"""Tests of the text and the time of the rows of a step's GPU work."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, ms_per_step


def test_copies_are_not_kernels() -> None:
    rows = pd.DataFrame({"kind": ["kernel", "kernel", "memcpy", "kernel"]})
    assert count_in_words(rows, 2) == "2 GPU operations"
    assert count_in_words(rows[rows["kind"] == "kernel"], 3) == "1 kernel"


def test_time_of_kernels_that_overlap_counts_once() -> None:
    """Two kernels run from 0 to 2 ms on two streams, and one from 3 to 4 ms.

    So the GPU works for 3 ms in 2 steps.
    """
    rows = pd.DataFrame({"start_ns": [0, 500_000, 3_000_000], "end_ns": [1_000_000, 2_000_000, 4_000_000]})
    assert ms_per_step(rows, 2) == 1.5
