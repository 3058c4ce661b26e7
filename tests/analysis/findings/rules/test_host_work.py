"""Tests of findings about the host's work: Python, waits, batch size, unused gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sawtooth.analysis.findings.batch import launches
from sawtooth.analysis.findings.batch.step import predict_batches
from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import Step
from sawtooth.analysis.findings.judging import judge as judge_evidence
from sawtooth.analysis.findings.model import Advice, Evidence
from sawtooth.analysis.findings.rules import small_batch
from sawtooth.analysis.findings.rules.python_between_operators import how_often, in_most_steps, steps_with_most
from sawtooth.analysis.replay.edits import WithoutWaits
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.app.reports.text import gain
from sawtooth.app.words.predicted_gain import gain_text
from sawtooth.ingest.manifest import UserFacts
from tests.support.actions import act
from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, library, result_of
from tests.support.run_results import NoRows, run_of


@pytest.mark.parametrize(
    ("times", "steps", "words"),
    [
        (2, 7, "twice in 7 steps"),
        (1, 3, "once in 3 steps"),
        (4, 4, "once per step"),
        (8, 4, "twice per step"),
        (9, 3, "3 times per step"),
    ],
)
def test_the_finding_says_how_often_python_delays_launches(times: int, steps: int, words: str) -> None:
    assert how_often(times, steps) == words


def test_python_that_delays_one_step_is_not_reported_for_each_step() -> None:
    assert steps_with_most([(1, 17, 4), (2, 6, 4), (3, 1, 1), (4, 1, 2)]) == 1  # 23 of 25
    assert steps_with_most([(1, 5, 1), (2, 5, 2), (3, 5, 3)]) == 3
    assert in_most_steps([(k, 32 if k == 5 else 2, k) for k in range(10)], 10)  # The mean is 5: each step has 2 or more.
    assert not in_most_steps([(1, 32, 1), (2, 1, 2), (3, 1, 3)], 10)


def test_a_small_batch_is_recognised_by_its_gpu_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # By the stopwatch a step takes 4 ms. The estimate loses 4.2 ms to launches, but the GPU works 1 ms, so the batch can be four times as large.
    monkeypatch.setattr(launches, "searching_convolutions", lambda given: SimpleNamespace(count_per_step=0))
    monkeypatch.setattr(launches, "plan_builds", lambda given: SimpleNamespace(count_per_step=0))
    monkeypatch.setattr(launches, "host_grows_with_batch", lambda given: False)
    monkeypatch.setattr(launches, "acting_passes", lambda given: None)
    monkeypatch.setattr(RuleContext, "launches", SimpleNamespace(launched_in_backward=lambda: [7]))
    run = run_of(
        ledger=[("other_compute", None, 1_000_000, 1.0), ("idle", "launch_bound", 6_000_000, 4.2)], best_ms=4.0, source="user"
    )
    assert run.lead is not None
    memory = SimpleNamespace(memory_peak_bytes=1e9, memory_total_bytes=150e9)
    (found,) = found_by(small_batch.RULE, RuleContext(run, run.lead, NoRows(), memory))  # type: ignore[arg-type]
    assert found.title.startswith("Launching a step takes the CPU 4 ms; the GPU needs 1 ms and has ")
    assert found.fix.endswith("about 4.0 times as large, a step takes hardly longer.")
    assert (found.claims, found.samples_per_second_times) == ("throughput", pytest.approx(4.0))
    assert gain(replace(run, findings=[found]), found) == "up to 4.0\u00a0× the samples per second"
    assert "saves" not in gain_text(found) and found.ceiling_ms_per_step is None
    assert not any(digit in change.before + change.after for change in found.changes for digit in "0123456789")
    known = replace(run, manifest=msgspec.structs.replace(run.manifest, facts=UserFacts(samples_per_step=64)))
    (found,) = found_by(small_batch.RULE, RuleContext(known, known.lead, NoRows(), memory))  # type: ignore[arg-type]
    assert (found.changes[0].before, found.changes[0].after) == (
        "DataLoader(dataset, batch_size=64)", "DataLoader(dataset, batch_size=256)",
    )  # fmt: skip


def test_a_larger_batch_is_not_advised_if_it_slows_the_host() -> None:
    # Linear layers over 8 sequences at once leave the GPU waiting for launches. So do 16 samples one by one, where a
    # larger batch launches more.
    memory = SimpleNamespace(memory_peak_bytes=1e9, memory_total_bytes=150e9)
    rates = {}
    for name in ("called_batch_by_batch", "called_sample_by_sample", "full_queue"):
        run = result_of(name)
        assert run.lead is not None
        with library().open(run.lead.recording_id) as recording:
            context = RuleContext(run, run.lead, recording, memory, whatif_of(recording, run.lead))
            rates[name] = [found.samples_per_second_times for found in found_by(small_batch.RULE, context)]
            predicted = predict_batches(context, [2.0])
        assert not (predicted and name != "called_batch_by_batch")
    assert rates["called_batch_by_batch"][0] > 1.5
    assert rates["called_sample_by_sample"] == rates["full_queue"] == []


def test_a_read_is_removed_with_its_synchronization(tmp_path: Path) -> None:
    # Of each 1,000 µs the GPU works 600. The host waits for it in a test of a tensor and briefly in the synchronization
    # after it, then writes a file.
    #
    # Without the copy alone, that synchronization would wait as long. Without both, the host needs about 440 µs a step
    # and the GPU limits the step.
    loop = ChromeTrace()
    for k in range(6):
        t = 1000 * k
        loop.step(k, t, t + 999)
        loop.op("autograd::engine::evaluate_function: MmBackward0", t + 1, t + 21)
        loop.op("aten::mm", t + 2, t + 20)
        loop.launch((t + 5, t + 10), (t + 15, t + 610), "gemm")
        loop.op("aten::is_nonzero", t + 30, t + 635)
        loop.correlation += 1
        loop.host("cuda_runtime", "cudaMemcpyAsync", t + 35, t + 620, correlation=loop.correlation)
        loop.gpu((t + 610, t + 615), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", correlation=loop.correlation, bytes=8)
        loop.host("cuda_runtime", "cudaStreamSynchronize", t + 630, t + 632)
    result = analysed(tmp_path, loop)
    reads = next(finding for finding in result.findings if finding.rule == "host-waits-for-gpu")
    assert reads.claims == "gain" and reads.predicted_step_ms == pytest.approx(0.6, rel=0.1)
    assert "Turn such checks off" in reads.fix  # Each check tests a tensor in Python.


def test_the_gpu_waits_for_the_host_only_after_a_long_copy(tmp_path: Path) -> None:
    """Of each 1,000 µs, the GPU computes for 300 and copies for 400. Then the host works."""
    loop = ChromeTrace()
    for k in range(6):
        t = 1000 * k
        loop.step(k, t, t + 999)
        loop.op("aten::mm", t + 2, t + 20)
        loop.launch((t + 5, t + 10), (t + 15, t + 315), "gemm")
        loop.op("aten::copy_", t + 30, t + 725)
        loop.correlation += 1
        loop.host("cuda_runtime", "cudaMemcpyAsync", t + 35, t + 720, correlation=loop.correlation)
        loop.gpu(
            (t + 315, t + 715), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", correlation=loop.correlation, bytes=8_000_000
        )
    result = analysed(tmp_path, loop)
    reads = next(finding for finding in result.findings if finding.rule == "host-waits-for-gpu")
    assert "which costs 700 µs of each step: the GPU copies for 400 µs and is idle for 300 µs" in reads.title


def test_an_uncertain_gain_saves_at_most_the_end_of_its_interval() -> None:
    # The wait is 32.4 ms, but the cores limit the step to 17.1 to 36.2 ms. At most 34.6 - 17.1 ms are saved.
    whatif: Any = SimpleNamespace(
        predict_ms=lambda best, edits: 17.1,
        predict_range_ms=lambda best, edits: (17.1, 36.2),
        fed_every_ms=lambda best, edits, step_ms, edge: None,
        range_of_another_run_ms=lambda best, edits, between: between,
    )
    best: Any = SimpleNamespace(ms=34.6, source="profile")
    waits = Evidence(Advice("It waits.", act("Load with more workers.")), lost_ms=32.4, edits=[WithoutWaits(())])
    result = judge_evidence(waits, Step(best, whatif), None)
    assert result is not None and result.severity == "info" and "may be as long as now" in result.note
    assert (result.predicted_step_ms, result.ceiling_ms_per_step) == (None, pytest.approx(17.5))


def test_without_unused_gradients_the_step_ends_after_the_last_trained_layer() -> None:
    # The forward pass has six products (24 µs of the host each) and ones_like. The backward pass has two for trained parameters (25 µs each)
    # and four for the others (49.5 µs each). The optimizer's step follows.
    found = finding("trained_above", "unused-gradients")
    assert found is not None and "4 of 6 parameters" in found.title and "96 µs" in found.title  # 4 × (20 + 4) µs of kernels
    step_us = 15 + 6 * 24 + 24 + 2 * 25 + 4 * 49.5 + 24
    without_us = step_us - 4 * 49.5
    assert found.predicted_speedup == pytest.approx(step_us / without_us, rel=0.05)
    twice = finding("trained_above_twice", "unused-gradients")
    assert twice is not None and "4 of 6 parameters" in twice.title and "192 µs" in twice.title  # The rule counts both passes.


@pytest.mark.parametrize(("name", "pads"), [("convolutions_planned", "images"), ("attention_planned", "length")])
def test_planning_for_new_shapes_is_answered_with_padding(name: str, pads: str) -> None:
    planned = finding(name, "plans-for-new-shapes")
    assert planned is not None and pads in planned.changes[-1].after
