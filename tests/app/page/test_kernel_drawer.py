"""Tests of a kernel's drawer: copies against their link, the possible gain, and its findings."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.analysis.findings.gpu_work import gpu_work, grouped
from sawtooth.analysis.knowledge.hardware import GpuPeaks, crossed_by, identify, link_of
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.tables.attainable import attained_operators
from sawtooth.app.page.parts.kernel_drawer import PAGEABLE, copied, most_to_gain_ms, verdict_on
from tests.support.findings_of import library, result_of

H200 = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")
FROM_HOST = "Memcpy HtoD (Pinned -> Device)"


def work(
    kernel_ms: float, least_ms: float | None, *, ms: float | None = None, moved: float | None = None, launches: float = 1
) -> pd.DataFrame:
    row = {
        "operator": "aten::copy_",
        "shapes": "",
        "kernel_ms": kernel_ms,
        "ms": ms,
        "least_ms": least_ms,
        "launches": launches,
        "bytes": moved,
    }
    return pd.DataFrame([row]).astype({"ms": float, "least_ms": float, "bytes": float})


@pytest.mark.parametrize(
    ("name", "between"),
    [
        (FROM_HOST, "host"), ("Memcpy DtoH (Device -> Pageable)", "host"), ("CopyHostToDevice", "host"),
        ("Memcpy PtoP (Device -> Device)", "gpus"), ("Memcpy DtoD (Device -> Device)", None), ("vectorized_elementwise_kernel", None),
    ],
)  # fmt: skip
def test_the_name_of_a_copy_gives_its_link(name: str, between: str | None) -> None:
    assert crossed_by(name) == between


def test_half_of_the_lanes_have_half_of_the_bandwidth() -> None:
    assert [link.gb_s for gpu in ("A2", "A10", "L20", "GH200 96GB") if (link := link_of(gpu, "host"))] == [
        15.75,
        31.5,
        31.5,
        450.0,
    ]


def test_the_rate_of_a_copy_is_shown_with_the_bandwidth_of_its_link() -> None:
    answer = copied(work(2.0, 1.0, moved=63e6), FROM_HOST, H200)  # 63 MB in 2 ms: half of 63 GB/s
    assert (
        answer
        == "These copies move 63.0\u00a0MB in 2.00\u00a0ms at 31.5\u00a0GB/s: 50\u00a0% of the 63\u00a0GB/s that PCIe 5 x16 can transfer in one direction."
    )
    pageable = copied(work(2.0, 1.0, moved=63e6), "Memcpy HtoD (Pageable -> Device)", H200)
    assert pageable is not None and pageable.endswith(f"in one direction. {PAGEABLE}")


def test_tiny_copies_have_no_rate() -> None:
    answer = copied(work(0.02, 0.0, moved=80.0, launches=10), FROM_HOST, H200)
    assert (
        answer
        == "These copies move 80\u00a0B in 20.0\u00a0µs, 8\u00a0B each. Starting such a copy takes longer than moving its bytes over PCIe 5 x16."
    )
    assert copied(work(0.02, None), FROM_HOST, H200) is None  # No bytes recorded.


def test_values_outside_the_table_are_reported() -> None:
    unknown: GpuPeaks | None = None
    answer = copied(work(2.0, None, moved=63e6), FROM_HOST, unknown)
    assert answer is not None and answer.endswith(
        "at 31.5\u00a0GB/s. The bandwidth of the link between this GPU and its host is not in the hardware table."
    )


def test_the_largest_gain_is_the_time_above_the_minimum() -> None:
    # 2.5 of the operator's 3 ms are above the minimum. This kernel takes 2 ms.
    assert most_to_gain_ms(work(2.0, 0.5, ms=3.0)) == pytest.approx(2.0)
    assert most_to_gain_ms(work(2.0, 1.5, ms=2.0)) == pytest.approx(0.5)
    assert most_to_gain_ms(work(2.0, 1.9)) == pytest.approx(0.1)  # A copy: the link allows 1.9 ms.
    assert most_to_gain_ms(work(2.0, None)) is None


def test_the_possible_gain_is_an_upper_limit() -> None:
    assert verdict_on(0.04, 2.0, 10.0).startswith("Nothing to gain here: as fast as possible, it would save 40.0\u00a0µs, 0.4")
    assert "would save at most 0.500\u00a0ms, 5.0\u00a0% of a profiled step" in verdict_on(0.5, 2.0, 10.0).replace(
        "500\u00a0µs", "0.500\u00a0ms"
    )
    assert verdict_on(None, 2.0, 10.0).endswith(
        "It takes 2.00\u00a0ms, 20\u00a0% of a profiled step; how fast it could be is not known."
    )
    assert verdict_on(None, 0.01, 10.0).startswith("Nothing to gain here: it takes 10.0\u00a0µs")


def test_a_recorded_copy_is_compared_with_its_link_and_has_its_finding() -> None:
    result = result_of("copy_pageable")
    lead = result.lead
    assert lead is not None
    name = "Memcpy HtoD (Pageable -> Device)"
    with open_rank(library(), lead) as view:
        row = attained_operators(view, name).iloc[0]
        # 192 images of 3 × 224 × 224 FP32: 115,605,504 bytes at 63 GB/s are 1.835 ms
        assert (row["bytes"], row["least_ms"]) == (192 * 3 * 224 * 224 * 4, pytest.approx(1.835, abs=1e-3))
        work = gpu_work(view, result.findings)
    (about,) = (row for row in grouped(work, "kernel").to_dict("records") if row["name"] == name)
    assert "pageable-copies" in [result.findings[place].rule for place in about["changes"]]
