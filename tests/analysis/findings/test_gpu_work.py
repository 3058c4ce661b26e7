"""Tests that every grouping of GPU time sums to the ledger's time, to the nanosecond."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.derive.lost.ledger import own_times, owner_ns, segments
from sawtooth.analysis.findings.gpu_work import NO_OPERATOR, gpu_work, grouped, host_times, own_time_by_two_groupings
from sawtooth.analysis.intervals import Intervals, union
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.edits import ScaledOps
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.actions import act
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import library, result_of
from tests.support.module_trace import work

GROUPINGS = ("kernel", "operator", "shape", "module", "class", "phase", "category")


@pytest.mark.parametrize("seed", range(8))
def test_operation_times_sum_to_the_time_of_their_owner(seed: int) -> None:
    rng = random.Random(seed)
    start = np.array([rng.randint(0, 400) for _ in range(60)], np.int64)
    end = start + np.array([rng.choice([0, 1, 7, 60]) for _ in range(60)], np.int64)
    codes = np.array([rng.randint(0, 4) for _ in range(60)], np.int8)
    window = union([20, 250], [200, rng.randint(250, 380)])
    own = own_times(start, end, codes, window)
    ledger = owner_ns(segments(start, end, codes, window), window)
    assert {key: int(own[codes == code].sum()) for code, key in enumerate(OWNER_KEYS)} == {**ledger, "idle": 0}
    assert (own >= 0).all() and (own <= end - start).all()


def test_overlapping_time_goes_to_the_higher_owner_then_the_earlier_operation() -> None:
    start, end = np.array([0, 5, 8], np.int64), np.array([10, 20, 12], np.int64)
    codes = np.array([1, 1, 0], np.int8)  # Two kernels, and one on tensor cores over both.
    window = Intervals(np.array([0], np.int64), np.array([18], np.int64))
    assert own_times(start, end, codes, window).tolist() == [8, 6, 4]


@pytest.mark.parametrize("name", ["gpt_small", "copy_pageable", "gpt_stack_memory", "ddp_balanced", "mlp_graph"])
def test_every_grouping_sums_to_the_time_of_the_ledger(name: str) -> None:
    result = result_of(name)
    for rank in result.ranks:
        with open_rank(library(), rank) as view:
            found = gpu_work(view)
        ledger_ns = sum(row.ns for row in rank.ledger if row.owner != "idle")
        assert found.rows["own_ns"].sum() == ledger_ns > 0
        for by in GROUPINGS:
            assert grouped(found, by)["ms"].sum() == pytest.approx(ledger_ns / 1e6 / found.step_divisor, rel=1e-12)
        assert own_time_by_two_groupings(found, "phase", "category")["ms"].sum() == pytest.approx(
            ledger_ns / 1e6 / found.step_divisor, rel=1e-12
        )


def marked_steps() -> ChromeTrace:
    """Return four steps of 1,000 µs, of which the GPU works 900.

    300 are a product, 50 a loss, 400 an autograd node on another thread, and 150 the optimizer.
    """
    trace = ChromeTrace()
    for at in range(0, 4000, 1000):
        trace.thread = 1
        trace.step(3 + at // 1000, at, at + 1000)
        work(trace, "aten::mm", at + 10, (at + 20, at + 320), None)
        work(trace, "aten::mse_loss", at + 20, (at + 320, at + 370), None)
        trace.thread = 2
        trace.op("autograd::engine::evaluate_function: MmBackward0", at + 40, at + 60)
        work(trace, "aten::mm", at + 45, (at + 370, at + 770), None)
        trace.thread = 1
        trace.host("user_annotation", "Optimizer.step#SGD.step", at + 70, at + 90)
        work(trace, "aten::_foreach_add_", at + 75, (at + 770, at + 920), None)
    return trace


def test_phases_operators_and_findings_by_hand(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    run = ingest_into_runs(data, [(marked_steps().write(tmp_path / "t.json"), "t.json")]).runs[0]
    store = Library(data)
    rank = analyse(run, store).lead
    assert rank is not None
    with open_rank(store, rank) as view:
        ops = view.rows(
            "SELECT gpu_op_id FROM named_gpu_ops g JOIN named_cpu_ops o USING (cpu_op_id) WHERE g.device = $device AND o.name = 'aten::mse_loss'"
        )
        found = gpu_work(
            view, [Finding("a", "warning", "a", act("Do it."), "medium", edits=(ScaledOps(tuple(op for (op,) in ops), 0.5),))]
        )
        host = host_times(view, "operator").set_index("operator")
    us = {row["name"]: round(1000 * row["ms"]) for row in grouped(found, "phase").to_dict("records")}
    assert us == {"backward": 400, "forward": 300, "optimizer": 150, "loss": 50}
    assert grouped(found, "phase") is grouped(found, "phase")  # A page asks three times, and each takes 15 ms.
    operators = grouped(found, "operator").set_index("name")
    assert round(1000 * operators.loc["aten::mm", "ms"]) == 700 and operators.loc["aten::mm", "launches_per_step"] == 2
    assert operators.loc["aten::mse_loss", "changes"] == (0,) and operators.loc["aten::mm", "changes"] == ()
    assert [row["name"] for row in grouped(found, "phase").to_dict("records") if row["changes"]] == ["loss"]
    assert host.loc["aten::mm", "calls_per_step"] == 2


def test_a_trace_of_kernels_alone_has_no_operators_and_no_phases(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in range(0, 400, 100):
        trace.gpu((at, at + 60), "elementwise_add")
    data = DataFolder(tmp_path / "data").create()
    store = Library(data)
    rank = analyse(ingest_into_runs(data, [(trace.write(tmp_path / "t.json"), "t.json")]).runs[0], store).lead
    assert rank is not None
    with open_rank(store, rank) as view:
        found = gpu_work(view)
    assert (found.has_operators, found.has_modules, found.has_phases) == (False, False, False)
    assert list(grouped(found, "operator")["name"]) == [NO_OPERATOR] and grouped(found, "kernel")["ms"].sum() == pytest.approx(
        0.24
    )
