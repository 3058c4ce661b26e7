"""Tests of the text about using the free memory for larger batches."""

from __future__ import annotations

from typing import Any

from sawtooth.app.words.savings import larger_batches


def at(times: float, step_ms: float, low_ms: float, high_ms: float, rate: float, memory: float | None = None) -> dict[str, Any]:
    return {
        "batch_times": times, "step_ms": step_ms, "low_ms": low_ms, "high_ms": high_ms, "samples_per_second_times": rate, "memory_bytes": memory,
    }  # fmt: skip


def test_a_full_gpu_gains_nothing_from_a_larger_batch() -> None:
    answer = larger_batches([{"memory_used_bytes": 13.5e9}, at(2, 310.0, 243.0, 386.0, 1.02)])
    assert answer is not None
    assert answer[0] == "A larger batch fits but hardly helps: this batch keeps the GPU busy"
    assert answer[1] == [
        "2\u00a0× the batch: ≈\u00a0310\u00a0ms (243 to 386\u00a0ms) per step, ≈\u00a01.0\u00a0× the samples per second."
    ]


def test_an_open_interval_means_that_a_larger_batch_may_help() -> None:
    unsure, sure = larger_batches([at(4, 26.3, 19.7, 33.6, 1.12)]), larger_batches([at(2, 20.0, 18.0, 22.0, 1.5, 6.5 * 2**30)])
    assert unsure is not None and sure is not None
    assert unsure[0] == "A larger batch fits and may help: ≈\u00a01.1\u00a0× the samples per second"
    assert sure[0] == "A larger batch fits and helps: ≈\u00a01.5\u00a0× the samples per second"
    assert sure[1][0].endswith("the samples per second, 6.50\u00a0GiB in use.")


def test_a_host_limited_step_has_a_range_instead_of_a_number() -> None:
    answer = larger_batches([at(2, 89.3, 44.8, 152.0, 2.0)])  # Another host may need half as long. This one takes 89.3 ms now.
    assert answer is not None
    assert answer[1] == ["2\u00a0× the batch: 89.3 to 152\u00a0ms per step, up to 2.0\u00a0× the samples per second."]


def test_without_a_prediction_nothing_is_written() -> None:
    assert larger_batches([{"memory_used_bytes": 2.2e9, "memory_bytes": 151e9}]) is None
