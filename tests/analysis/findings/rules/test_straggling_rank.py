"""Tests of the findings about a rank that is late."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.rules.straggling_rank import RULE as STRAGGLING
from sawtooth.analysis.metrics.step_time_evidence import StepWork
from sawtooth.analysis.replay.whatif import GPU_LIMITED_STEP_DIFFERENCE
from sawtooth.analysis.run.job import Communication, RankWaits, Straggler
from sawtooth.analysis.run.model import Finding
from tests.support.run_results import NoRows, run_of


def findings_of_late_rank(stragglers: tuple[Straggler, ...], late_ms: float, works_ms: tuple[float, ...] = ()) -> list[Finding]:
    """Return the findings of a run whose rank 1 is ``late_ms`` late under the profiler.

    A step takes 40 ms, 50 in the replay. ``works_ms`` is the GPU work of each rank.
    """
    run = run_of(ledger=[("other_compute", None, 60_000_000, 40.0)], best_ms=40.0, source="estimate")
    assert run.lead is not None
    waits = tuple(RankWaits(i, i, 0, 0.0, late_ms * i, None, None, unprofiled_wait_ms=0.0) for i in range(2))
    communication = Communication(pd.DataFrame(), waits, 0, (), stragglers, 50.0)
    ranks = [run.lead, run.lead]
    for position, ms in enumerate(works_ms):
        ranks[position] = replace(run.lead, work=StepWork(ms * 1e6, 0.0))
    job = replace(run, ranks=ranks, communication=communication)
    return list(found_by(STRAGGLING, RuleContext(job, run.lead, NoRows())))  # type: ignore[arg-type]


def test_cost_of_a_late_rank_is_the_gain_of_the_job_without_it() -> None:
    # The gain is 20 ms of the replayed step of 50 ms, which is 16 ms of a step of 40 ms.
    late = Straggler("rank", (1,), (1,), None, "data_wait", None, 25.0, 20.0)
    (found,) = findings_of_late_rank((late,), 25.0)
    assert found.title == "Rank 1 takes 25 ms longer per step than the others, because of its data loader"
    assert (found.severity, found.confidence) == ("critical", "medium"), "the interval of the gain is wide"
    assert (found.predicted_step_ms, found.ceiling_ms_per_step) == (pytest.approx(24.0), pytest.approx(16.0))
    # Replays are up to a fifth of the gain off. If the work of a job's GPUs is unknown, its runs differ by up to 19.8 %.
    differ = 0.14 * 2**0.5  # The drift of a host's speed in both runs.
    ends = (pytest.approx(20.8 * (1 - differ)), pytest.approx(27.2 * (1 + differ)))
    assert (found.predicted_low_ms, found.predicted_high_ms) == ends


def test_work_spread_over_the_ranks_keeps_all_gpus_busy() -> None:
    """Two GPUs work 32 and 16 ms, and each 24 ms after the change, as long as the step."""
    late = Straggler("rank", (1,), (1,), None, "work", None, 16.0, 20.0)
    (found,) = findings_of_late_rank((late,), 0.0, (16.0, 32.0))
    assert found.predicted_step_ms == pytest.approx(24.0)
    ends = (20.8 * (1 - GPU_LIMITED_STEP_DIFFERENCE), 27.2 * (1 + GPU_LIMITED_STEP_DIFFERENCE))
    assert (found.predicted_low_ms, found.predicted_high_ms) == pytest.approx(ends)


@pytest.mark.parametrize(("gain_ms", "severity"), [(4.0, "critical"), (1.6, "warning")])
def test_the_interval_of_a_late_ranks_gain_does_not_change_the_severity(gain_ms: float, severity: str) -> None:
    """The replayed step is 50 ms.

    At the worst end of the interval, another run's step is as long as now.
    """
    late = Straggler("rank", (1,), (1,), None, "data_wait", None, 25.0, gain_ms)
    (found,) = findings_of_late_rank((late,), 25.0)
    assert found.severity == severity
    assert found.predicted_step_ms is not None
    assert found.predicted_high_ms is not None
    assert found.predicted_high_ms > 39.999


def test_a_slow_gpu_and_a_slow_host_are_distinguished() -> None:
    slow = Straggler("rank", (1,), (1,), None, None, 1.25, 25.0, 20.0)
    assert findings_of_late_rank((slow,), 0.0)[0].title.endswith(
        "because of equal kernels that take 1.25 times as long on its GPU"
    )
    host = Straggler("host", (0, 1), (8, 9), "node0001", "python_host", None, 8.0, 7.0)
    (found,) = findings_of_late_rank((host,), 0.0)
    assert (
        found.title
        == "Host node0001 with its 2 ranks takes 8 ms longer per step than the others, because of Python on its host"
    )


def test_each_late_rank_with_its_own_reason_has_advice() -> None:
    stragglers = (
        Straggler("set", (0, 1), (0, 9), None, None, None, 10.0, 9.0),
        Straggler("rank", (0,), (0,), None, "data_wait", None, 10.0, 1.0),
        Straggler("rank", (1,), (9,), None, "python_host", None, 10.0, 0.0),
    )
    (found,) = findings_of_late_rank(stragglers, 0.0)
    assert found.fix == (
        "Feed rank 0 as fast as the others: check its storage, workers and decoding first. Remove extra Python from rank 9: check its code in the "
        "step first, then its CPU. The timeline shows their traces."
    )
    many = Straggler("set", (0,), tuple(range(16)), None, "data_wait", None, 10.0, 9.0)
    (found,) = findings_of_late_rank((many,), 0.0)
    assert found.fix == (
        "Feed the late ranks as fast as the others: check their storage, workers and decoding first. The timeline shows the trace of one."
    )


def test_delay_caused_only_by_the_profiler_is_not_predicted() -> None:
    (found,) = findings_of_late_rank((), 25.0)
    assert (found.severity, found.predicted_step_ms, found.ceiling_ms_per_step) == ("info", None, None)
    assert "without it, all ranks take about the same time" in found.title
    assert findings_of_late_rank((), 1.0) == []  # 2.5 % of the step
