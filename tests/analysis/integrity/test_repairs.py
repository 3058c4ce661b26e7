"""Tests of exact repairs of a trace.

They concern durations that reach into the next operation, ranges that were never popped, and a period that the median
hides.
"""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from sawtooth.analysis.derive.steps.unended_ranges import end_ranges
from sawtooth.analysis.run.host import _step
from sawtooth.ingest.decode import NULL
from sawtooth.ingest.trace.overruns import Overruns
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import ROOT


def columns(starts, ends, stream=7, graph=NULL, kinds=0, names=3, launches=NULL):
    count = len(starts)
    return {
        "device": np.zeros(count, np.int32),
        "stream": np.full(count, stream),
        "start": np.array(starts),
        "dur": np.array(ends) - np.array(starts),
        "graph_id": np.full(count, graph),
        "correlation": np.zeros(count, np.int64) + np.array(launches, np.int64),
        "kind": np.zeros(count, np.int8) + np.array(kinds, np.int8),
        "name_id": np.zeros(count, np.int32) + np.array(names, np.int32),
    }


def cuts(*slices, call_of=None):
    overruns = Overruns()
    for rows in slices:
        overruns.add(rows, np.ones(len(rows["start"]), bool))
    count = sum(len(rows["start"]) for rows in slices)
    rows, lengths = overruns.cuts(np.arange(count) if call_of is None else np.array(call_of))
    return dict(zip(rows.tolist(), lengths.tolist(), strict=True))


def test_an_operation_ends_where_the_next_of_its_stream_begins_also_across_slices() -> None:
    first = columns([0, 100_000, 200_000], [90_000, 900_000, 700_000])
    second = columns([300_000, 400_000], [350_000, 450_000])
    assert cuts(first, second) == {1: 100_000, 2: 100_000}


@pytest.mark.parametrize(
    ("rows", "call_of"),
    [
        (
            columns([0, 191_100], [215_000, 218_500]),
            None,
        ),  # Dependent launch: 23.9 µs of 215 µs, and the next kernel ends later.
        (columns([0, 3_000], [6_000, 9_000]), None),  # The overlap is half of a short kernel.
        (columns([0, 100_000], [300_000, 200_000], graph=3), None),  # Branches of a graph, by its id.
        (columns([0, 100_000], [300_000, 200_000]), [4, 4]),  # The same if one call launched both.
    ],
)
def test_legal_overlaps_stay(rows, call_of) -> None:
    assert cuts(rows, call_of=call_of) == {}


@pytest.mark.parametrize("graph", [3, NULL])
def test_operations_of_a_graph_end_before_the_next_launch_begins(graph: int) -> None:
    starts, ends = [0, 100_000, 200_000, 400_000, 500_000], [700_000, 150_000, 404_000, 450_000, 550_000]
    rows = columns(starts, ends, graph=graph, launches=[4, 4, 4, 5, 5])
    assert cuts(rows, call_of=[0, 0, 0, 1, 1]) == {0: 400_000}  # The third overlaps by 4 µs, which is legal.
    others = columns(starts, ends, graph=graph, launches=[4, 4, 4, 4, 4])
    assert cuts(others, call_of=[0, 0, 0, 0, 0]) == {}


@pytest.mark.parametrize(
    "rows",
    [
        columns([0, 191_100], [215_000, 210_000]),  # The next kernel ends first: it did not wait for this one.
        columns([0, 150_000], [215_000, 250_000]),  # 30 % of the kernel
        # The overlap occurs once in the four times that these two kernels follow each other.
        columns(
            [0, 191_100, 500_000, 700_000, 800_000, 1_000_000, 1_100_000, 1_300_000],
            [215_000, 218_500, 690_000, 720_000, 990_000, 1_020_000, 1_290_000, 1_320_000],
            names=[1, 2] * 4,
        ),
        columns([0, 191_100], [215_000, 218_500], kinds=[0, 1]),  # Copies do not overlap with kernels of their stream.
    ],
)
def test_near_misses_of_dependent_launches_are_cut(rows) -> None:
    assert cuts(rows) == {0: int(rows["start"][1])}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("example", ["resnet_starved", "resnet_fixed"])
def test_the_examples_with_dependent_launches_lose_nothing(example: str) -> None:
    result = analysed([("t.json", gzip.decompress((ROOT / "sample_traces" / example / "trace.json.gz").read_bytes()))])
    assert result is not None and not result.failed
    assert "overrun" not in {diagnostic.key for diagnostic in result.diagnostics}


@pytest.mark.parametrize("excess_us", [900, 3500])
def test_products_that_run_into_the_next_operation_take_their_own_time(excess_us: int) -> None:
    trace = matmul_loop(8)
    for event in [e for e in trace.events if e["name"].startswith("nvjet")][::3]:
        event["dur"] += excess_us
    result = analysed([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    products = result.lead.categories.set_index("category").loc["gemm", "ns"] / len(result.lead.counted)
    assert products == pytest.approx(600_000)
    assert {d.key: d.count for d in result.diagnostics}["overrun"] == 3


def test_ranges_that_end_together_end_where_the_next_begins() -> None:
    starts, ends = np.array([0, 10, 20, 30]), np.array([100, 100, 100, 100])
    assert end_ranges(starts, ends).tolist() == [10, 20, 30, 100]
    assert end_ranges(np.array([0, 10, 20]), np.array([9, 19, 29])).tolist() == [9, 19, 29]


@pytest.mark.parametrize(
    ("first", "steps", "ms"),
    [
        (6, [270, 6, 6, 6, 310, 6, 6, 6, 330], 95.2),  # 952 ms in 10 steps, three of which collect garbage
        (None, [6, 6, 6, 6, 6, 300], 6.0),  # One slow step may be chance, so the median is reported.
        (None, [6, 7, 6, 5, 6, 7], 6.0),
        (None, [46, 6, 46, 6, 46, 6, 46], 202 / 7),  # Most steps are slow.
    ],
)
def test_the_mean_is_reported_if_slow_steps_repeat(first, steps, ms) -> None:
    first_ns = None if first is None else first * 1_000_000
    assert _step([ns * 1_000_000 for ns in steps], first_ns, None, None, None).value == pytest.approx(ms)


def test_efficiency_above_the_peak_is_never_trusted() -> None:
    # 2.1 GFLOP in 10 µs is 215 TFLOP/s: possible in bf16, not in fp32
    trace = matmul_loop(8, step_us=10, matmul_us=1, other_us=0.5)
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["args"]["Input type"] = ["float", "float"]
        if event["name"].startswith("nvjet"):
            event["name"] = "triton_mm_kernel"
    result = analysed([("t.json", trace.json())])
    assert result is not None
    reading = result.metrics["mfu_at_dtype"]
    assert reading.value is None or reading.trust == "unusable" or reading.value <= 1.1
