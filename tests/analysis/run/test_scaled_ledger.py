"""Tests of scaling the ledger to the best step time: its columns sum to the stated step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawtooth.analysis.metrics.registry import Reading
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.run.model import LedgerRow
from sawtooth.analysis.run.scaled_ledger import at_best, unseen_ms
from sawtooth.ingest.loop.step_parts import StepParts


def best(ms: float, source: str = "telemetry") -> BestStepTime:
    return BestStepTime(source, Reading(ms), Reading(71.0), Reading(49.2), 71.0)


def ledger(works: float = 30.0, launch: float = 15.0, python: float = 4.2, recorded_lost: float = 41.0) -> list[LedgerRow]:
    return [
        LedgerRow(0, "tensor_core_compute", None, 10**9, works, works, 0.4),
        LedgerRow(0, "idle", "launch_bound", 10**9, recorded_lost, launch, 0.5),
        LedgerRow(0, "idle", "python_host", 10**8, 0.0, python, 0.1),
    ]


def column(rows: list[LedgerRow]) -> dict[str | None, float]:
    return {row.cause: row.ms_per_step_unprofiled_est or 0.0 for row in rows}


@given(st.floats(1, 500), st.floats(0.1, 100), st.floats(0, 100), st.floats(0, 100), st.floats(0, 200))
def test_the_column_sums_to_the_step(step: float, works: float, launch: float, python: float, recorded: float) -> None:
    rows = at_best(ledger(works, launch, python, recorded), best(step))
    assert math.fsum(column(rows).values()) == pytest.approx(step)
    assert all(value >= 0 for value in column(rows).values())


def test_a_busy_gpu_leaves_no_time_for_a_slow_host() -> None:
    found = column(at_best(ledger(), best(31.9)))
    assert found[None] == 30.0 and found["launch_bound"] == pytest.approx(1.9 * 15 / 19.2) and "unattributed" not in found


def test_time_outside_profiled_steps_has_no_cause() -> None:
    found = column(at_best(ledger(recorded_lost=25.0), best(130.0)))
    assert found["launch_bound"] + found["python_host"] == pytest.approx(25.0)
    assert found["unattributed"] == pytest.approx(75.0)


def test_a_copy_of_known_length_does_not_grow_with_a_slow_host() -> None:
    copy = LedgerRow(0, "exposed_memcpy", "unattributed", 7 * 10**8, 0.7, 0.7, 0.01)
    # 30 ms of work and 30 ms lost. The replay assigns 19.2 ms to the host and 0.7 ms to the copy.
    rows = at_best([*ledger(), copy], best(60.0))
    copied = next(row for row in rows if row.owner == "exposed_memcpy")
    assert copied.ms_per_step_unprofiled_est == pytest.approx(0.7)
    assert column(rows)["launch_bound"] == pytest.approx(15.0 * 29.3 / 19.2)


def test_trace_only_ledger_is_not_scaled() -> None:
    for source in ("profile", "estimate"):
        assert at_best(ledger(), best(49.2, source)) == ledger()


def test_launch_latency_is_not_scaled_without_other_losses() -> None:
    # 30 ms of work and 0.6 of latency are in a step of 191 ms. 160.4 ms are in no profiled step, although the profiled
    # steps lost 41 to the host.
    latency = LedgerRow(0, "idle", "launch_latency", 6 * 10**8, 0.6, 0.6, 0.01)
    step = BestStepTime("telemetry", Reading(191.0), Reading(71.0), Reading(30.6), 71.0)
    rows = at_best([*ledger(launch=0.0, python=0.0), latency], step)
    found = column(rows)
    assert found["launch_latency"] == pytest.approx(0.6)
    assert found["unattributed"] == unseen_ms(rows, step) == pytest.approx(160.4)


def test_waits_for_first_batches_of_epochs_are_not_host_causes() -> None:
    """Of a step of 70 ms, 30 are work and 15 wait for first batches of epochs: 25 have the host's causes."""
    parts = StepParts(waiting_ms=16.0, first_ms=15.0, starting_ms=3.0, epochs=4, epoch_steps=20.0)
    step = replace(best(70.0), parts=parts)
    rows = at_best(ledger(), step)
    assert column(rows)["launch_bound"] + column(rows)["python_host"] == pytest.approx(25.0)
    assert column(rows)["unattributed"] == unseen_ms(rows, step) == pytest.approx(15.0)


def test_lost_time_does_not_grow_if_the_profiled_steps_do_not_represent_the_run() -> None:
    """30 ms of work and 19.2 lost make the 49.2 ms of the headline.

    So 80.8 of 130 ms are in no profiled step. (59 ms would be wrong.)
    """
    step = replace(best(130.0), represented=False)
    rows = at_best(ledger(), step)
    assert column(rows) == {None: 30.0, "launch_bound": 15.0, "python_host": 4.2, "unattributed": pytest.approx(80.8)}
    assert unseen_ms(rows, step) == pytest.approx(80.8)


def test_difference_within_the_interval_is_no_part_of_its_own() -> None:
    # 30 ms of work and at most 41 lost are 71 of 75 ms. An interval from 70 ms on includes 71 ms, one from 72 on does not.
    unsure = replace(best(75.0), reading=Reading(75.0, low=70.0, high=80.0))
    rows = at_best(ledger(), unsure)
    assert column(rows)["launch_bound"] + column(rows)["python_host"] == pytest.approx(45.0)  # 41 lost and 4 more
    assert "unattributed" not in column(rows) and unseen_ms(rows, unsure) == 0.0
    sure = replace(best(75.0), reading=Reading(75.0, low=72.0, high=78.0))
    rows = at_best(ledger(), sure)
    assert column(rows)["launch_bound"] + column(rows)["python_host"] == pytest.approx(41.0)
    assert column(rows)["unattributed"] == pytest.approx(4.0) and unseen_ms(rows, sure) == pytest.approx(4.0)


def test_small_waits_do_not_explain_a_large_difference() -> None:
    # 30 ms of work and 1 ms lost are 31 of 33 ms. The interval includes 31, but no host is three times as slow.
    unsure = replace(best(33.0), reading=Reading(33.0, low=30.0, high=36.0), estimate=Reading(31.0))
    rows = at_best(ledger(launch=0.6, python=0.4, recorded_lost=1.0), unsure)
    assert column(rows)["launch_bound"] + column(rows)["python_host"] == pytest.approx(1.0)
    assert column(rows)["unattributed"] == pytest.approx(2.0)
    assert unseen_ms(rows, unsure) == 0.0, "not explained, but not outside the profiled steps either"
