"""Tests of a run's largest loss, and of the part of the recording that it refers to.

Ledgers and traces are built by hand.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import choose_step_time
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.analysis.run.verdict import RunJudgement, explains, judge
from sawtooth.app.words.efficiency import mfu_headline
from sawtooth.app.words.run import headline, is_lower_bound, mfu_fact
from tests.support.actions import act
from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace
from tests.support.run_results import run_of

COMPUTES = ("other_compute", None, 400_000, 0.4)


def judged(*lost: tuple[str, int], **more: object) -> RunJudgement:
    """Return the verdict on a step that computes for 0.4 ms and loses ``lost``: (cause, ns)."""
    rows = [COMPUTES, *(("idle", cause, ns, ns / 1e6) for cause, ns in lost)]
    run = run_of(ledger=rows, source="estimate", **more)
    assert run.lead is not None
    verdict = judge(run.lead)
    assert verdict is not None
    return verdict


def test_small_cause_is_not_the_headline() -> None:
    verdict = judged(("unattributed", 590_000), ("host_sync", 10_000))
    assert verdict.loss is not None and verdict.loss.cause == "unattributed"
    assert verdict.loss.ms == pytest.approx(0.6)
    assert "wait for the device" not in headline(verdict) and "host" not in headline(verdict)


def test_a_cause_with_most_of_the_time_is_the_headline() -> None:
    verdict = judged(("unattributed", 200_000), ("host_sync", 400_000), ("launch_latency", 900_000))
    assert verdict.loss is not None and verdict.loss.cause == "host_sync"


@pytest.mark.parametrize(("launches", "python", "explained"), [(400_000, 150_000, True), (150_000, 400_000, False)])
def test_graph_that_removes_python_does_not_make_launches_the_headline(launches, python, explained) -> None:
    verdict = judged(("launch_bound", launches), ("python_host", python))
    graph = Finding(
        "graph", "critical", "Launches", act("One graph."), "high", predicted_step_ms=0.45, predicted_speedup=2.1, explains=Explains(("launch_bound",), topics=frozenset({"host_pace"}))
    )  # fmt: skip
    assert graph.gain_ms == pytest.approx(0.495)  # More than either change alone.
    assert (explains(verdict, [graph]) is graph) == explained
    assert ("launch kernels" in headline(verdict, explains(verdict, [graph]))) == explained


def test_copies_with_most_lost_time_are_the_headline() -> None:
    copies, rest = ("exposed_memcpy", "unattributed", 500_000, 0.5), ("idle", "unattributed", 300_000, 0.3)
    lead = run_of(ledger=[COMPUTES, copies, rest], source="estimate").lead
    assert lead is not None
    verdict = judge(lead)
    assert verdict is not None and verdict.loss is not None
    assert (verdict.loss.owner, verdict.loss.ms) == ("exposed_memcpy", pytest.approx(0.5))
    assert headline(verdict).endswith("goes to copies not overlapped by compute, part of its busy time.")


def test_overlap_of_busy_and_lost_shares_is_explained() -> None:
    rows = [
        ("other_compute", None, 160_000, 0.16),
        ("exposed_memcpy", "host_sync", 500_000, 0.5),
        ("idle", "host_sync", 340_000, 0.34),
    ]
    lead = run_of(ledger=rows, source="estimate").lead
    verdict = judge(lead) if lead is not None else None
    assert verdict is not None and verdict.loss is not None and verdict.loss.transfer_ms == pytest.approx(0.5)
    assert headline(verdict).replace("\xa0", " ") == (
        "The GPU is busy 66 % of each ≈ 1.00 ms step; 84 % (840 µs) goes to the host waiting for a result (sync), 500 µs of it copying."
    )


def test_loss_of_many_causes_is_reported_as_such() -> None:
    verdict = judged(("host_sync", 60_000), ("data_wait", 55_000), ("allocator", 50_000))
    assert verdict.loss is not None and verdict.loss.cause is None and verdict.loss.ms == pytest.approx(0.165)
    assert "several causes, none of which has most of it" in headline(verdict)


def test_unknown_tensor_core_use_is_not_reported_as_none() -> None:
    assert "None of its compute time" in headline(judged(metrics={"tensor_core_time_share": 0.0}))
    unknown = headline(judged(metrics={"tensor_core_time_share": 0.0, "tensor_core_unknown_share": 0.6}))
    assert "None" not in unknown and "for 60\u00a0% it is unknown" in unknown


def test_without_steps_start_and_end_of_the_recording_count(tmp_path: Path) -> None:
    # A capture of 1,000 µs has 100 µs of kernels without a gap. Its window is 100 % busy, the recording 10 %.
    trace = ChromeTrace()
    trace.op("aten::empty", 0, 5)
    for i in range(10):
        trace.launch((400 + 2 * i, 401 + 2 * i), (450 + 10 * i, 460 + 10 * i), ADDS)
    trace.op("aten::empty", 990, 1000)
    result = analysed(tmp_path, trace)
    assert result.lead is not None and not len(result.lead.counted)
    verdict = judge(result.lead)
    assert verdict is not None
    assert verdict.busy_share == pytest.approx(0.1)
    assert sum(part.ms for part in verdict.parts) == pytest.approx(1.0)
    assert headline(verdict).startswith("The GPU is busy 10\u00a0% of the recorded time")


def test_without_steps_every_number_has_one_basis(tmp_path: Path) -> None:
    # The same capture, and one whose first kernel waited 5,000 µs for earlier work that is not recorded: 100 µs of kernels in 100 + 450.
    for queued_us, whole_us in ((0, 1000), (5000, 400 + 100 + 450)):
        trace = ChromeTrace()
        trace.op("aten::empty", 0, 5)
        for i in range(10):
            at = 450 + queued_us + 10 * i
            trace.launch((400 + 2 * i, 401 + 2 * i), (at, at + 10), ADDS)
        trace.op("aten::empty", 990 + queued_us, 1000 + queued_us)
        result = analysed(tmp_path, trace)
        assert result.lead is not None
        verdict = judge(result.lead)
        assert verdict is not None
        assert verdict.busy_share == result.metrics["gpu_busy_share"].value == pytest.approx(100 / whole_us)
        assert sum(row.share for row in result.lead.ledger) == pytest.approx(1.0)
        assert sum(row.ns for row in result.lead.ledger) == result.lead.window_ns == pytest.approx(1000 * whole_us)


def test_two_steps_with_possible_warm_up_cause_a_doubt() -> None:
    steps = pd.DataFrame(
        {"cycle": [0, 0], "start_ns": [0, 30_000_000], "end_ns": [30_000_000, 40_000_000], "counted": [True, True]}
    )
    assert choose_step_time(steps, None, None).profiled.trust == "caution"
    later = pd.concat([steps, steps.assign(start_ns=40_000_000, end_ns=50_000_000)], ignore_index=True)
    assert choose_step_time(later.assign(counted=[False, True, True, True]), None, None).profiled.trust == "ok"


def test_mfu_with_missing_flops_is_a_lower_bound() -> None:
    metrics = {
        "mfu": Reading(0.3, trust="caution", bound="least"),
        "mfu_at_dtype": Reading(0.3),
        "flops_per_step": Reading(1e12, trust="caution", notes=("A lower bound: FLOPs are known for 60% of GEMM time.",)),
    }
    assert is_lower_bound(metrics) and "MFU is ≥\u00a030" in mfu_headline(metrics, [])[0]
    assert not is_lower_bound({"flops_per_step": Reading(1e12)})


def test_fp8_products_are_compared_with_the_fp8_peak() -> None:
    peak = "Peak 1978.9 TFLOP/s dense, of the operators' dtypes (fp8)."
    metrics = {"mfu": Reading(0.6, notes=(peak,)), "mfu_at_dtype": Reading(0.6), "flops_per_step": Reading(1e12)}
    assert mfu_fact(metrics) == ("MFU, by each operator's dtype", "60\u00a0%")
    assert mfu_headline(metrics, []) == ("MFU is 60\u00a0%.", None)
    assert mfu_fact(metrics | {"mfu": Reading(0.4)}) == ("MFU", "40\u00a0%")
