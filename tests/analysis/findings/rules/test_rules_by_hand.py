"""Tests of rules whose problem cannot be recorded on demand, on hand-built loops and telemetry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pandas as pd
import pytest

from sawtooth.analysis.findings.batch import launches
from sawtooth.analysis.findings.batch.step import at_batches
from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import Step
from sawtooth.analysis.findings.judging import judge as judge_evidence
from sawtooth.analysis.findings.model import Advice, Evidence
from sawtooth.analysis.findings.rules import small_batch, steps_not_marked, workers_beyond_cores
from sawtooth.analysis.findings.rules.python_between_operators import how_often, in_most_steps, steps_with_most
from sawtooth.analysis.findings.rules.straggling_rank import RULE as STRAGGLING
from sawtooth.analysis.replay.edits import WithoutWaits
from sawtooth.analysis.run.job import Communication, RankWaits, Straggler
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import explains, judge
from sawtooth.analysis.run_analysis import analyse, whatif_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.app.reports.text import gain
from sawtooth.app.words.headline import between_steps, first_change
from sawtooth.app.words.predicted_gain import brings
from sawtooth.app.words.run import first_line
from sawtooth.ingest.manifest import Manifest, UserFacts
from sawtooth.ingest.schema import DataFolder
from tests.support.actions import act
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.findings_of import finding, library, result_of
from tests.support.run_results import run_of
from tests.support.sampled_loop import HARDWARE_SLOWDOWN, SOFTWARE_HEAT, write


def sampled(folder: Path, **said: Any) -> RunResult:
    """Analyse a loop and its telemetry (``sampled_loop.write``)."""
    library = Library(DataFolder(folder / "data"))
    run = bring_in(library.folder, [(path, path.name) for path in write(folder, **said)]).runs[0]
    result = analyse(run, library)
    library.close()
    return result


@pytest.mark.parametrize(("later_s", "words"), [(-120, "ends 1.9"), (90, "begins 1.5 minutes after"), (-30, None), (30, None)])
def test_telemetry_of_another_time_is_not_used(tmp_path: Path, later_s: int, words: str | None) -> None:
    # Six seconds of samples at 10 % belong to another run if they end 114.1 s before the trace or begin 90 s after it.
    result = sampled(tmp_path, later_s=later_s, util=10)
    assert result.lead is not None and result.lead.represents is not None
    told = [d.sentence for d in result.diagnostics if d.key == "telemetry_elsewhere"]
    util = result.metrics["nvml_gpu_util_mean"]
    if words is None:
        assert (told, util.trust, result.lead.represents.represents) == ([], "ok", False)
    else:
        assert words in told[0] and (util.trust, util.notes[-1]) == ("caution", told[0])
        assert result.lead.represents.represents is None and result.lead.best.source != "telemetry"


def test_a_loader_whose_queue_was_full_during_the_profile_is_named() -> None:
    # A step takes 1 ms as profiled; telemetry sees 10 % of the time at work that fills 0.7 ms of a step and 2 µs of dispatch, so the run's takes 7.02 ms.
    found = result_of("full_queue").findings[0]
    assert (found.rule, found.severity) == ("prefetch-queue-hid-the-loader", "critical")
    assert "telemetry shows about 7.02 ms for the run" in found.title
    assert found.predicted_step_ms == pytest.approx(1.0, rel=0.1)  # less what recording cost
    assert found.ceiling_ms_per_step == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize(("workers", "limits_the_step"), [(1, True), (2, False)])
def test_workers_as_slow_as_the_step_come_before_other_losses(workers: int, limits_the_step: bool) -> None:
    """Loader workers that take as long as the step come first, whatever else is lost.

    4 samples of 1.75 ms take one worker 7 ms, and the step takes 7.02 ms by telemetry. Two workers would need 3.5 ms,
    and the step would not wait for them.
    """
    as_found = result_of("full_queue")
    assert as_found.lead is not None
    facts = UserFacts(loader_workers=workers, loader_cores=8, loader_batch=4, loader_sample_ms=1.75, loader_sample_cpu_ms=1.75)
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts), library())
    assert run.lead is not None and (verdict := judge(run.lead)) is not None
    named = [finding.rule for finding in run.findings if finding.explains.causes == ("data_wait",)]
    assert named == (["prefetch-queue-hid-the-loader"] if limits_the_step else [])
    if limits_the_step:
        found = replace(run.findings[0], predicted_step_ms=6.9, predicted_speedup=7.02 / 6.9)  # little beside what else is lost
        assert found.limits_the_step and explains(verdict, [found]) is found
        assert explains(verdict, [replace(found, limits_the_step=False)]) is None
        assert "One loader worker needs 7 ms" in found.title
        assert first_line(run).endswith("It waits for the data loader, which the profiled steps do not show.")


def test_workers_as_fast_as_the_step_are_the_first_change() -> None:
    # By a stopwatch the step takes 1.02 ms, as profiled, and one worker needs as long for its 4 samples. The GPU's own
    # work takes 0.7 ms.
    as_found = result_of("full_queue")
    facts = UserFacts(
        step_time_ms=1.02, loader_workers=1, loader_cores=8, loader_batch=4, loader_sample_ms=0.255, loader_sample_cpu_ms=0.255
    )
    traces = [
        ref for ref in as_found.manifest.recordings if ref.kind == "trace"
    ]  # telemetry would say that the profile hides a wait
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts, recordings=traces), library())
    found = run.findings[0]
    assert (found.rule, found.severity, found.limits_the_step) == ("prefetch-queue-hid-the-loader", "warning", True)
    assert found.claims == "ceiling" and found.ceiling_ms_per_step == pytest.approx(0.32, abs=0.03)
    assert first_change(run) is not None and first_change(run)[0] is found  # type: ignore[index]  # it is one


@pytest.mark.parametrize(("sample_ms", "bounded"), [(0.24, True), (0.02, False)])
def test_a_loader_bound_finding_says_how_often_batches_arrive(sample_ms: float, *, bounded: bool) -> None:
    """A gain that the loader limits is stated with the time between batches.

    One worker takes 0.96 or 0.08 of the step for its 4 samples. With 0.96, no CUDA graph makes the step shorter than
    that.
    """
    as_found = result_of("mlp_eager")
    step_ms = as_found.metrics["best_step_time_ms"].value or 0.0
    facts = UserFacts(
        step_time_ms=step_ms,
        loader_workers=1,
        loader_cores=8,
        loader_batch=4,
        loader_sample_ms=sample_ms * step_ms,
        loader_sample_cpu_ms=sample_ms * step_ms,
    )
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts), library())
    launches = next(finding for finding in run.findings if finding.rule == "launch-bound")
    assert (launches.fed_every_ms is not None) is bounded


@pytest.mark.parametrize("reason", [SOFTWARE_HEAT, HARDWARE_SLOWDOWN])
def test_clocks_throttled_by_heat_or_hardware_are_named(tmp_path: Path, reason: int) -> None:
    # 12 of 60 samples of 0.1 s: 1.2 s of the 5.9 s between the first sample and the last, 20 %.
    found = next(f for f in sampled(tmp_path, throttled=12, reason=reason).findings if f.rule == "thermal-slowdown")
    assert "lowered the clocks for 20 % of the sampled time at 1200 MHz" in found.title
    row = found.evidence[0]
    assert row["end_ns"] - row["start_ns"] == 1_200_000_000


class NoRows:
    """A recording without gaps."""

    def frame(self, sql: str, parameters: object = None) -> pd.DataFrame:
        return pd.DataFrame(columns=["start_ns", "end_ns"])


def late_ranks(stragglers: tuple[Straggler, ...], late_ms: float) -> list[Finding]:
    """Return the findings of a run whose rank 1 is ``late_ms`` late under the profiler.

    A step takes 40 ms, 50 in the replay.
    """
    run = run_of(ledger=[("other_compute", None, 60_000_000, 40.0)], best_ms=40.0, source="estimate")
    assert run.lead is not None
    waits = tuple(RankWaits(i, i, 0, 0.0, late_ms * i, None, None, None, unprofiled_wait_ms=0.0) for i in range(2))
    communication = Communication(pd.DataFrame(), waits, 0, (), stragglers, 50.0)
    job = replace(run, ranks=[run.lead, run.lead], communication=communication)
    return list(found_by(STRAGGLING, RuleContext(job, run.lead, NoRows())))  # type: ignore[arg-type]


def test_cost_of_a_late_rank_is_the_gain_of_the_job_without_it() -> None:
    # 20 of the 50 ms replayed are gained, which of a step of 40 is 16.
    late = Straggler("rank", (1,), (1,), None, "data_wait", None, 25.0, 20.0)
    (found,) = late_ranks((late,), 25.0)
    assert found.title == "Rank 1 takes 25 ms per step longer than the others: its data loader"
    assert (found.severity, found.confidence) == ("critical", "medium"), "a gain with so wide an interval is no surer"
    assert (found.predicted_step_ms, found.ceiling_ms_per_step) == (pytest.approx(24.0), pytest.approx(16.0))
    # A fifth of the gain is what replays miss; of a job whose GPUs' work is not known runs differ by 12 %.
    assert (found.predicted_low_ms, found.predicted_high_ms) == (pytest.approx(20.8 * 0.88), pytest.approx(27.2 * 1.12))


@pytest.mark.parametrize(("gain_ms", "severity"), [(4.0, "critical"), (1.6, "warning")])
def test_the_interval_of_a_late_ranks_gain_does_not_change_the_severity(gain_ms: float, severity: str) -> None:
    """The replayed step is 50 ms.

    At the worst end of the interval, another run's step is as long as now.
    """
    late = Straggler("rank", (1,), (1,), None, "data_wait", None, 25.0, gain_ms)
    (found,) = late_ranks((late,), 25.0)
    assert found.severity == severity
    assert found.predicted_step_ms is not None
    assert found.predicted_high_ms is not None
    assert found.predicted_high_ms > 39.999


def test_a_slow_gpu_and_a_slow_host_are_distinguished() -> None:
    slow = Straggler("rank", (1,), (1,), None, None, 1.25, 25.0, 20.0)
    assert late_ranks((slow,), 0.0)[0].title.endswith(": equal kernels that take 1.25 times as long on its GPU")
    host = Straggler("host", (0, 1), (8, 9), "node0001", "python_host", None, 8.0, 7.0)
    (found,) = late_ranks((host,), 0.0)
    assert found.title == "Host node0001 with its 2 ranks takes 8 ms per step longer than the others: Python on its host"


def test_each_late_rank_with_its_own_reason_has_advice() -> None:
    stragglers = (
        Straggler("set", (0, 1), (0, 9), None, None, None, 10.0, 9.0),
        Straggler("rank", (0,), (0,), None, "data_wait", None, 10.0, 1.0),
        Straggler("rank", (1,), (9,), None, "python_host", None, 10.0, 0.0),
    )
    (found,) = late_ranks(stragglers, 0.0)
    assert found.fix == (
        "Feed rank 0 as fast as the others: check its storage, workers and decoding first. Take the extra Python off rank 9: check its code in the "
        "step first, then its CPU. Their traces are on the timeline."
    )
    many = Straggler("set", (0,), tuple(range(16)), None, "data_wait", None, 10.0, 9.0)
    (found,) = late_ranks((many,), 0.0)
    assert found.fix == (
        "Feed the late ranks as fast as the others: check their storage, workers and decoding first. The trace of one is on the timeline."
    )


def test_delay_caused_only_by_the_profiler_is_not_predicted() -> None:
    (found,) = late_ranks((), 25.0)
    assert (found.severity, found.predicted_step_ms, found.ceiling_ms_per_step) == ("info", None, None)
    assert "without it, all ranks take about the same time" in found.title
    assert late_ranks((), 1.0) == []  # 2.5 % of the step


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
    assert in_most_steps([(k, 32 if k == 5 else 2, k) for k in range(10)], 10)  # the mean is 5: each step has 2 or more
    assert not in_most_steps([(1, 32, 1), (2, 1, 2), (3, 1, 3)], 10)


def test_a_small_batch_is_recognised_by_its_gpu_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stopwatch says 4 ms, the estimate loses 4.2 ms to launches: the GPU works 1 of the 4 ms, so four times the batch fits, not millions.
    monkeypatch.setattr(launches, "searching_convolutions", lambda given: SimpleNamespace(count=0))
    monkeypatch.setattr(launches, "plan_builds", lambda given: SimpleNamespace(count=0))
    monkeypatch.setattr(launches, "host_grows_with_batch", lambda given: False)
    monkeypatch.setattr(launches, "acting", lambda given: None)
    monkeypatch.setattr(RuleContext, "launches", SimpleNamespace(in_backward=lambda: [7]))
    run = run_of(
        ledger=[("other_compute", None, 1_000_000, 1.0), ("idle", "launch_bound", 6_000_000, 4.2)], best_ms=4.0, source="user"
    )
    assert run.lead is not None
    memory = SimpleNamespace(memory_peak_bytes=1e9, memory_total_bytes=150e9)
    (found,) = found_by(small_batch.RULE, RuleContext(run, run.lead, NoRows(), memory))  # type: ignore[arg-type]
    assert found.title.startswith("Launching a step takes the CPU 4 ms; the GPU needs 1 ms and has ")
    assert found.fix.endswith("about 4.0 times as large hardly takes longer.")
    assert (found.claims, found.samples_per_second_times) == ("throughput", pytest.approx(4.0))
    assert gain(replace(run, findings=[found]), found) == "up to 4.0\u00a0× the samples per second"
    assert "saves" not in brings(found) and found.ceiling_ms_per_step is None
    assert not any(digit in change.before + change.after for change in found.changes for digit in "0123456789")
    known = replace(run, manifest=msgspec.structs.replace(run.manifest, facts=UserFacts(samples_per_step=64)))
    (found,) = found_by(small_batch.RULE, RuleContext(known, known.lead, NoRows(), memory))  # type: ignore[arg-type]
    assert (found.changes[0].before, found.changes[0].after) == (
        "DataLoader(dataset, batch_size=64)", "DataLoader(dataset, batch_size=256)",
    )  # fmt: skip


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "times", "below_it"),
    [
        ("pauses", 1.8, "Between its steps the loop pauses for 100 ms, 2 times in 250 steps: 44 % of the run, which these times do not include."),
        ("pauses_to_save", 2.0, "Writing checkpoints is not included in these times: 100 ms every 100 steps (1.00 ms per step on average)."),
    ],
)  # fmt: skip
def test_cost_of_pauses_between_steps_refers_to_the_run(name: str, times: float, below_it: str) -> None:
    """The cost of pauses between steps is reported for the run and not for its step.

    They take 100 ms twice in 250 steps of 1 ms. A checkpoint after steps 100 and 200 repeats every 100 steps. If the
    period is unknown, only the observed pauses are reported.
    """
    result = result_of(name)
    (stalls,) = (f for f in result.findings if f.rule == "periodic-stalls")
    assert (stalls.claims, stalls.ceiling_ms_per_step) == ("throughput", None)
    assert stalls.samples_per_second_times == pytest.approx(times, rel=0.01)
    step = result.metrics["best_step_time_ms"]
    assert (step.value, step.trust) == (pytest.approx(1.0, rel=0.01), "caution")
    assert result_of("pauses_to_evaluate").metrics["best_step_time_ms"].trust == "ok"  # as who times steps leaves out
    often = next(f for f in result_of("pauses_often_to_save").findings if f.rule == "periodic-stalls")
    assert (often.claims, often.ceiling_ms_per_step) == ("ceiling", pytest.approx(5.0, rel=0.01)), (
        "the step of 6 ms holds those"
    )
    assert (between_steps(result) or "").replace("\xa0", " ") == below_it
    with_them = f"including them, a step takes {'1.8 ms' if name == 'pauses' else '2 ms'} on average"
    assert with_them in step.notes[0].replace("\xa0", " ")


@pytest.mark.parametrize(
    ("name", "advised"), [("rounds", None), ("rounds_not_profiled", "Profile a whole round: at least 8 steps")]
)
def test_time_before_each_round_is_not_rare_if_the_profile_contains_it(name: str, advised: str | None) -> None:
    result = result_of(name)
    hidden = next((f for f in result.findings if f.rule == "profile-not-representative"), None)
    assert (hidden and hidden.fix[: len(advised or "")]) == advised
    assert hidden is None or "active=16" in hidden.changes[0].after
    assert "periodic-stalls" not in {f.rule for f in result.findings}
    assert (between_steps(result) or "").replace("\xa0", " ") == (
        "A round of 8 steps takes 16 ms: 8 ms in its steps and 8 ms before the first step (e.g. a rollout)."
    )


def test_a_larger_batch_is_not_advised_if_it_slows_the_host() -> None:
    """A larger batch is not advised if the host needs longer for it.

    Linear layers over 8 sequences at once leave the GPU waiting for launches. So do 16 samples one by one, where a
    larger batch launches more.
    """
    memory = SimpleNamespace(memory_peak_bytes=1e9, memory_total_bytes=150e9)
    rates = {}
    for name in ("called_batch_by_batch", "called_sample_by_sample", "full_queue"):
        run = result_of(name)
        assert run.lead is not None
        with library().open(run.lead.recording_id) as recording:
            context = RuleContext(run, run.lead, recording, memory, whatif_of(recording, run.lead))
            rates[name] = [found.samples_per_second_times for found in found_by(small_batch.RULE, context)]
            predicted = at_batches(context, [2.0])
        assert not (predicted and name != "called_batch_by_batch")
    assert rates["called_batch_by_batch"][0] > 1.5
    assert rates["called_sample_by_sample"] == rates["full_queue"] == []


def test_a_read_is_removed_with_its_synchronization(tmp_path: Path) -> None:
    """A host read is removed together with the synchronization that ends it.

    Of each 1,000 µs the GPU works 600. The host waits for it in a test of a tensor and briefly in the synchronization
    after it, then writes a file.

    Without the copy alone, that synchronization would wait as long. Without both, the host needs about 440 µs a step
    and the GPU limits the step.
    """
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
    library = Library(DataFolder(tmp_path / "data"))
    result = analyse(run_in(library, loop.write(tmp_path / "trace.json")), library)
    library.close()
    reads = next(finding for finding in result.findings if finding.rule == "host-waits-for-gpu")
    assert reads.claims == "gain" and reads.predicted_step_ms == pytest.approx(0.6, rel=0.1)
    assert "Turn such checks off" in reads.fix  # each tests a tensor in Python


def test_the_gpu_waits_for_the_host_only_after_a_long_copy(tmp_path: Path) -> None:
    """Of each 1,000 µs the GPU computes 300 and copies 400 to the host, which then needs the rest."""
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
    library = Library(DataFolder(tmp_path / "data"))
    result = analyse(run_in(library, loop.write(tmp_path / "trace.json")), library)
    library.close()
    reads = next(finding for finding in result.findings if finding.rule == "host-waits-for-gpu")
    assert "which costs 700 µs of each step: the GPU copies for 400 µs and is idle for 300 µs" in reads.title


def run_in(library: Library, trace: Path) -> Manifest:
    return bring_in(library.folder, [(trace, trace.name)]).runs[0]


def test_an_uncertain_gain_saves_at_most_the_end_of_its_interval() -> None:
    # A wait of 32.4 ms, but the cores keep a step at 17.1 to 36.2 ms: at most 34.6 - 17.1 ms are saved.
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


def test_time_outside_the_profiled_steps_has_one_likely_explanation(tmp_path: Path) -> None:
    # A tensor is drawn on the host in each profiled step of 1 ms; telemetry sees steps of several ms, which nothing else explains.
    loop = matmul_loop()
    for k in range(4):
        at = 1000 * k
        loop.op("aten::randint", at + 745, at + 860, [[]], ["Scalar"])
        loop.op("aten::copy_", at + 865, at + 990)
        loop.launch(
            (at + 870, at + 980), (at + 900, at + 960), "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=1_000_000
        )
        loop.host("cuda_runtime", "cudaStreamSynchronize", at + 981, at + 988)
    result = sampled(tmp_path, later_s=30, util=20, loop=loop)
    made = next(f for f in result.findings if f.rule == "tensors-made-on-cpu")
    assert "most likely" in made.title and made.confidence == "medium"
    assert not any(f.rule == "profile-not-representative" for f in result.findings)
    assert "Most likely it waits for tensors made on the CPU" in first_line(result)


@pytest.mark.parametrize(
    ("steps", "best", "told"),
    [("annotation", "marks", 0), ("annotation", "estimate", 1), ("inferred", "marks", 0), ("none", "marks", 1)],
)
def test_a_run_with_step_marks_gets_no_advice_to_mark_steps(steps: str, best: str, told: int) -> None:
    """`sawtooth run` marks each optimizer step, which PyTorch also annotates in the profile.

    If a graph holds the whole step, it marks each replay.
    """
    rank = SimpleNamespace(
        trace=SimpleNamespace(by_nsight=False), step_source=steps, best=SimpleNamespace(source=best), counted=[1]
    )
    context = SimpleNamespace(rank=rank, recording=SimpleNamespace(named=lambda pattern: []))
    assert len(list(steps_not_marked.RULE.measure(context))) == told  # type: ignore[arg-type]


def test_waits_for_the_first_read_of_a_dataset_do_not_blame_the_loader() -> None:
    """A wait for a first read that is over is not a fault of the loader.

    Half of a step's wait is the loader's. From the second epoch on, the page cache holds what the loader reads. A
    loader that reads from the disk again is reported.
    """
    over = {finding.rule for finding in result_of("read_first_and_then_from_memory").findings}
    assert "slow-first-read" in over and not over & {"data-loader-starves-gpu", "batches-in-bursts", "periodic-stalls"}
    again = {finding.rule for finding in result_of("read_first_and_again").findings}
    assert "data-loader-starves-gpu" in again


def test_without_unused_gradients_the_step_ends_after_the_last_trained_layer() -> None:
    # Six products forward (24 µs of the host each), ones_like; backward two that are trained (25 each), four that are not (49.5 each); the optimizer's step.
    found = finding("trained_above", "unused-gradients")
    assert found is not None and "4 of 6 parameters" in found.title and "96 µs" in found.title  # 4 × (20 + 4) µs of kernels
    step_us = 15 + 6 * 24 + 24 + 2 * 25 + 4 * 49.5 + 24
    without_us = step_us - 4 * 49.5
    assert found.predicted_speedup == pytest.approx(step_us / without_us, rel=0.05)
    twice = finding("trained_above_twice", "unused-gradients")
    assert twice is not None and "4 of 6 parameters" in twice.title and "192 µs" in twice.title  # in both passes


@pytest.mark.parametrize(("name", "pads"), [("convolutions_planned", "images"), ("attention_planned", "length")])
def test_planning_for_new_shapes_is_answered_with_padding(name: str, pads: str) -> None:
    planned = finding(name, "plans-for-new-shapes")
    assert planned is not None and pads in planned.changes[-1].after


def test_timed_workers_are_judged_without_host_samples() -> None:
    facts = UserFacts(loader_workers=8, loader_cores=2, loader_batch=32, loader_sample_ms=10.0, loader_sample_cpu_ms=10.0)
    run = run_of(ledger=[("other_compute", None, 1_000_000, 1.0)])
    run = replace(run, manifest=msgspec.structs.replace(run.manifest, facts=facts))
    assert run.lead is not None
    (found,) = found_by(workers_beyond_cores.RULE, RuleContext(run, run.lead, NoRows()))  # type: ignore[arg-type]
    assert (found.severity, found.rule) == ("info", "workers-beyond-cores")
