"""Tests of findings about the data loader: workers, full queues, first reads."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.rules import workers_beyond_cores
from sawtooth.analysis.run.verdict import explains, judge
from sawtooth.analysis.run_analysis import analyse
from sawtooth.app.words.headline import first_change
from sawtooth.app.words.run import first_line
from sawtooth.ingest.manifest import UserFacts
from tests.support.findings_of import library, result_of
from tests.support.run_results import NoRows, run_of


def test_a_loader_whose_queue_was_full_during_the_profile_is_named() -> None:
    # The profiled step takes 1 ms, with 0.7 ms of GPU work and 2 µs of dispatch. By telemetry this is 10 % of the run's step: 7.02 ms.
    found = result_of("full_queue").findings[0]
    assert (found.rule, found.severity) == ("prefetch-queue-hid-the-loader", "critical")
    assert "telemetry shows about 7.02 ms for the run" in found.title
    assert found.predicted_step_ms == pytest.approx(1.0, rel=0.1)  # The time is without the cost of recording.
    assert found.ceiling_ms_per_step == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize(("workers", "limits_the_step"), [(1, True), (2, False)])
def test_workers_as_slow_as_the_step_come_before_other_losses(workers: int, limits_the_step: bool) -> None:
    # 4 samples of 1.75 ms take one worker 7 ms, and the step takes 7.02 ms by telemetry. Two workers would need 3.5 ms,
    # and the step would not wait for them.
    as_found = result_of("full_queue")
    assert as_found.lead is not None
    facts = UserFacts(loader_workers=workers, loader_cores=8, loader_batch=4, loader_sample_ms=1.75, loader_sample_cpu_ms=1.75)
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts), library())
    assert run.lead is not None and (verdict := judge(run.lead)) is not None
    named = [finding.rule for finding in run.findings if finding.explains.causes == ("data_wait",)]
    assert named == (["prefetch-queue-hid-the-loader"] if limits_the_step else [])
    if limits_the_step:
        found = replace(run.findings[0], predicted_step_ms=6.9, predicted_speedup=7.02 / 6.9)  # A small part of the lost time.
        assert found.limits_the_step and explains(verdict, [found]) is found
        assert explains(verdict, [replace(found, limits_the_step=False)]) is None
        assert "One loader worker needs 7 ms" in found.title
        assert first_line(run).endswith("It waits for the data loader, which the profiled steps do not show.")


@pytest.mark.parametrize(("cores", "advice"), [(4, "Make a sample cheaper"), (16, "Give the loader more workers")])
def test_more_workers_than_cores_are_not_advised(cores: int, advice: str) -> None:
    """Four samples of 7 ms take four workers 7 ms, and the step takes 7.02 ms.

    More workers on four cores are not faster.
    """
    as_found = result_of("full_queue")
    facts = UserFacts(loader_workers=4, loader_cores=cores, loader_batch=4, loader_sample_ms=7.0, loader_sample_cpu_ms=7.0)
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts), library())
    found = run.findings[0]
    assert found.rule == "prefetch-queue-hid-the-loader" and found.fix.startswith(advice)
    assert (found.claims == "ceiling") == (cores == 4) and "no gain" not in first_line(run)


def test_workers_as_fast_as_the_step_are_the_first_change() -> None:
    # By a stopwatch the step takes 1.02 ms, as in the profile, and one worker needs as long for the step's 4 samples. The
    # GPU's own work takes 0.7 ms.
    as_found = result_of("full_queue")
    facts = UserFacts(
        step_time_ms=1.02, loader_workers=1, loader_cores=8, loader_batch=4, loader_sample_ms=0.255, loader_sample_cpu_ms=0.255
    )
    # Without telemetry, which would show that the profile hides a wait
    traces = [ref for ref in as_found.manifest.recordings if ref.kind == "trace"]
    run = analyse(msgspec.structs.replace(as_found.manifest, facts=facts, recordings=traces), library())
    found = run.findings[0]
    assert (found.rule, found.severity, found.limits_the_step) == ("prefetch-queue-hid-the-loader", "warning", True)
    assert found.claims == "ceiling" and found.ceiling_ms_per_step == pytest.approx(0.32, abs=0.03)
    assert first_change(run) is not None and first_change(run)[0] is found  # type: ignore[index]


@pytest.mark.parametrize(("sample_ms", "bounded"), [(0.24, True), (0.02, False)])
def test_a_loader_bound_finding_says_how_often_batches_arrive(sample_ms: float, *, bounded: bool) -> None:
    # One worker takes 0.96 or 0.08 of the step for its 4 samples. With 0.96, no CUDA graph makes the step shorter than
    # that.
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


def test_waits_for_the_first_read_of_a_dataset_do_not_blame_the_loader() -> None:
    # Half of a step's wait is the loader's. From the second epoch on, the page cache holds what the loader reads. A
    # loader that reads from the disk again is reported.
    over = {finding.rule for finding in result_of("read_first_and_then_from_memory").findings}
    assert "slow-first-read" in over and not over & {"data-loader-starves-gpu", "batches-in-bursts", "periodic-stalls"}
    again = {finding.rule for finding in result_of("read_first_and_again").findings}
    assert "data-loader-starves-gpu" in again


def test_timed_workers_are_judged_without_host_samples() -> None:
    facts = UserFacts(loader_workers=8, loader_cores=2, loader_batch=32, loader_sample_ms=10.0, loader_sample_cpu_ms=10.0)
    run = run_of(ledger=[("other_compute", None, 1_000_000, 1.0)])
    run = replace(run, manifest=msgspec.structs.replace(run.manifest, facts=facts))
    assert run.lead is not None
    (found,) = found_by(workers_beyond_cores.RULE, RuleContext(run, run.lead, NoRows()))  # type: ignore[arg-type]
    assert (found.severity, found.rule) == ("info", "workers-beyond-cores")
