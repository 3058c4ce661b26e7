"""Tests of a job's step from all its GPUs, on two ranks with known work, waits and step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.knowledge.hardware import Dispatch
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.job_law import TracedDevice, by_utilization
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry, SampledOwner
from sawtooth.analysis.telemetry.summary import summarize
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

START_NS, SAMPLES = 1_790_000_000_000_000_000, 120
FREE = Dispatch(0.0, 0.0, 0.0, "none, so that sums stay simple")
LIGHT, HEAVY = (
    StepWork(10e6, 0, dispatch=FREE),
    StepWork(16e6, 0, dispatch=FREE),
)  # The ranks' own work in a step is 10 and 16 ms.
Law = Callable[..., StepTimeEvidence | None]


@pytest.fixture
def law(tmp_path: Path) -> Law:
    def of(
        utils: tuple[np.ndarray, ...],
        *,
        owners: bool = True,
        only_bounds: str | None = None,
        lag_ns: int = 0,
        in_turn_ns: float = 0.0,
        activity: tuple[np.ndarray, ...] = (),
    ) -> StepTimeEvidence | None:
        folder = DataFolder(tmp_path / "data").create()
        lines = [{"meta": True, "gpus": [{"gpu": g, "name": "NVIDIA H200"} for g in range(len(utils))]}]
        for i in range(SAMPLES):
            lines += [
                {"t_ns": START_NS + i * 10**8 + g * lag_ns, "gpu": g, "gpu_util": float(util[i])}
                | ({"gpm_graphics": float(activity[g][i])} if activity else {})
                for g, util in enumerate(utils)
            ]
        path = tmp_path / "nvml.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        library = Library(folder)
        with library.open(ingest_file(path, folder).id, derived=False) as recording:
            devices = tuple(summarize(recording))
        ids = ("a", "b")
        telemetry = RunTelemetry(
            devices,
            owners=tuple(SampledOwner(ids[g], 0, g) for g in range(len(utils))) if owners else (),
            possible=tuple(range(len(utils))),
        )
        workers = [TracedDevice("a", 0, LIGHT), TracedDevice("b", 0, HEAVY)]
        return by_utilization(library, telemetry, workers, [], in_turn_ns, only_bounds)

    return of


def test_rank_that_waits_least_gives_the_step_time(law: Law) -> None:
    """In a step of 20 ms the heavy rank works 16 (80 %).

    The light one works 10 and waits 9 in collectives (95 %).
    """
    found = law((np.full(SAMPLES, 95.0), np.full(SAMPLES, 80.0)))
    assert found is not None
    assert found.ms == pytest.approx(20.0)
    assert found.high_ms is not None
    assert 17 < found.low_ms < 19 and 21 < found.high_ms < 23


def test_ranks_that_wait_in_turn_are_compared_sample_by_sample(law: Law) -> None:
    """Steps of 25 and 16 ms alternate.

    First the light rank is late (40 %) and the heavy one waits for it; then neither waits for long.
    """
    turns = np.arange(SAMPLES) % 20 < 10
    light, heavy = np.where(turns, 40.0, 97.0), np.where(turns, 99.0, 99.0)
    found = law((light, heavy))
    # of 16 ms: light 40 % → 40·16/10 = 64, heavy 99; then light 97 → 155, heavy 99. The mean of 64 and 99 is 81.5: 16 / 0.815 = 19.6
    assert found is not None
    assert found.ms == pytest.approx(19.63, rel=0.01)


def test_interval_includes_all_orders_if_gpus_are_not_identified(law: Law) -> None:
    known = law((np.full(SAMPLES, 95.0), np.full(SAMPLES, 80.0)))
    unknown = law((np.full(SAMPLES, 95.0), np.full(SAMPLES, 80.0)), owners=False)
    assert known is not None and unknown is not None
    # In the other order the heavy rank would be at 95 %: 16 / 0.95 = 16.8 ms.
    assert unknown.low_ms < 16.8 < 20.0 < (unknown.high_ms or 0.0)
    assert unknown.low_ms < known.low_ms


def test_a_pipeline_is_bounded_from_below_only(law: Law) -> None:
    found = law((np.full(SAMPLES, 95.0), np.full(SAMPLES, 80.0)), only_bounds="every stage of a pipeline waits at times")
    assert found is not None
    assert (found.ms, found.high_ms) == (None, None)
    assert 17 < found.low_ms < 20


def test_one_sampled_gpu_of_two_ranks_gives_no_job_step(law: Law) -> None:
    assert law((np.full(SAMPLES, 95.0),)) is None


def test_gpus_sampled_slightly_apart_are_compared(law: Law) -> None:
    found = law((np.full(SAMPLES, 95.0), np.full(SAMPLES, 80.0)), lag_ns=30_000_000)
    assert found is not None
    assert found.ms == pytest.approx(20.0)


def test_waits_in_turn_count_as_busy(law: Law) -> None:
    """The heavy rank works 16 ms and waits 4 in a step of 25: 80 % although it works 64 %.

    The other's GPU idles for those 4 and more.
    """
    found = law((np.full(SAMPLES, 80.0), np.full(SAMPLES, 80.0)), in_turn_ns=4e6)
    assert found is not None and found.high_ms is not None
    assert found.ms == pytest.approx(25.0)
    assert found.low_ms < 20.0 and found.high_ms > 28.0
    assert "Of each step, 4 ms is waiting" in found.notes[0]


def test_a_rank_that_is_never_idle_does_not_wait_in_turn(law: Law) -> None:
    """Under the profiler, the ranks wait 4 ms in turn.

    In the run, the light rank's GPU is always busy, because this rank waits. The heavy rank never waits.
    """
    found = law((np.full(SAMPLES, 100.0), np.full(SAMPLES, 80.0)), in_turn_ns=4e6)
    assert found is not None and found.high_ms is not None
    assert found.ms == pytest.approx(20.0)
    assert found.high_ms > 25.0  # The replay gives another step time, which may be right.
    assert "waiting" not in found.notes[0]


def test_ranks_that_alternate_wait_only_if_both_are_idle(law: Law) -> None:
    """Half of the time one rank leads and the other is fully busy with waiting.

    Half of the time both idle for a fifth of a step.
    """
    both = np.arange(SAMPLES) % 20 < 10
    found = law((np.where(both, 80.0, 100.0), np.full(SAMPLES, 80.0)), in_turn_ns=4e6)
    # Of 22.5 ms. In half of the samples the light rank's GPU is idle for 4.5 ms, so 4 ms may be waiting: 2 ms on average.
    assert found is not None
    assert found.ms == pytest.approx(22.5, rel=0.01)


def test_gap_free_activity_is_used_if_the_period_is_near_nvml_sampling(law: Law) -> None:
    """The heavy rank's loader is late by turns of a fifth of a second.

    NVML looks at parts of that and varies slowly. Over all of the time the rank works 64 %, 16 ms of 25.
    """
    at = np.arange(SAMPLES)
    beats, turns = 45 + 35 * np.sin(at / 12), np.where(at % 2 == 0, 36.0, 92.0)
    waits = np.full(SAMPLES, 100.0)
    found = law((waits, beats), activity=(waits, turns))
    assert found is not None
    assert found.ms == pytest.approx(25.0, rel=0.02)
    assert "GPU activity (GPM)" in found.notes[0]
    alike = law((waits, np.full(SAMPLES, 80.0)), activity=(waits, np.full(SAMPLES, 79.0)))
    assert alike is not None
    assert alike.ms == pytest.approx(20.0)  # Both are steady, so NVML decides. It counts each kernel's dispatch.
