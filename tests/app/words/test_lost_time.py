"""Tests of the rows of lost time: they add up to the value in the sentence.

Either all rows describe the run without the profiler, or all describe the profiled steps. Only the latter include the
profiler's cost.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.run.model import Explains
from sawtooth.app.words import lost_time
from tests.support.run_results import finding_of, run_of

# A step takes 350 ms as profiled and 148 ms in the run. The last number of each row is its replayed time in the run, in ms. The
# replay leaves 1.2 ms of the profiler's cost.
LEDGER = [
    ("other_compute", None, 11_000_000, 11.0),
    ("idle", "launch_bound", 275_000_000, 109.0),
    ("idle", "python_host", 61_500_000, 26.0),
    ("idle", "profiler", 2_000_000, 1.2),
    ("idle", "launch_latency", 500_000, 0.8),
]


def rank_of(ledger=LEDGER, source="telemetry"):
    rank = run_of(ledger=ledger, best_ms=148.0, source=source).lead
    assert rank is not None
    return rank


def test_the_rows_of_the_run_add_up_to_its_lost_time_without_the_profiler() -> None:
    rows = lost_time.rows(rank_of(), "unprofiled")
    assert [row.label for row in rows] == ["Kernel launches", "Python on the host", "Everything else"]
    assert lost_time.total_ms(rows) == pytest.approx(137.0)  # 148 − 11 of work
    # 1.2 ms of the profiler's cost that remain in the replay, and 0.8 ms of launch latency
    assert rows[-1].ms == pytest.approx(2.0)
    sentence = lost_time.sentence(rank_of(), "unprofiled", rows).replace("\xa0", " ")
    assert sentence == "≈ 137 ms of each 148 ms step is lost, 109 ms of it to the host launching kernels."


def test_profiled_rows_include_the_profiler() -> None:
    rows = lost_time.rows(rank_of(), "recorded")
    assert sum(row.ms for row in rows) == pytest.approx(339.0)
    sentence = lost_time.sentence(rank_of(), "recorded", rows).replace("\xa0", " ")
    assert sentence.startswith("339 ms of each 350 ms profiled step is lost")


def test_negligible_copies_are_not_mentioned_separately() -> None:
    rows = lost_time.rows(rank_of([*LEDGER, ("exposed_memcpy", None, 2_000, 0.002)]), "unprofiled")
    assert sum(row.transfer_ms for row in rows) and lost_time.busy_meanwhile(rows) is None


def test_lost_time_with_copies_is_mentioned_separately() -> None:
    rows = lost_time.rows(rank_of([("other_compute", None, 50_000_000, 50.0), ("exposed_memcpy", None, 30_000_000, 30.0),
                              ("idle", "host_sync", 20_000_000, 20.0)]), "unprofiled")  # fmt: skip
    assert (lost_time.busy_meanwhile(rows) or "").replace("\xa0", " ") == (
        "For 30.0 ms of this the GPU copies or communicates while nothing computes; for the other 20.0 ms it does nothing."
    )
    assert lost_time.busy_meanwhile(lost_time.rows(rank_of(), "unprofiled")) is None


def test_a_cause_with_copies_and_idle_time_is_one_row_and_its_copies_alone_are_busy_time() -> None:
    rank = rank_of([("other_compute", None, 16_000_000, 16.0), ("exposed_memcpy", "host_sync", 35_000_000, 35.0),
                    ("idle", "host_sync", 26_000_000, 26.0), ("exposed_memcpy", "unattributed", 4_000_000, 4.0)])  # fmt: skip
    rows = lost_time.rows(rank, "unprofiled")
    assert [(row.ms, row.transfer_ms) for row in rows] == [(61.0, 35.0), (4.0, 4.0)]
    assert (lost_time.busy_meanwhile(rows) or "").replace("\xa0", " ") == (
        "For 39.0 ms of this the GPU copies or communicates while nothing computes; for the other 26.0 ms it does nothing."
    )


def test_a_cause_without_lost_time_has_no_row() -> None:
    rank = rank_of([("other_compute", None, 50_000_000, 50.0), ("idle", "launch_bound", 20_000_000, 0.0)])
    assert lost_time.rows(rank, "unprofiled") == []
    assert [row.label for row in lost_time.rows(rank, "recorded")] == ["Kernel launches"]


def test_the_name_of_a_row_within_a_sentence_begins_with_a_small_letter() -> None:
    rank = rank_of([("other_compute", None, 50_000_000, 50.0), ("idle", "profiler", 20_000_000, 1.0)])
    assert [(row.label, row.name) for row in lost_time.rows(rank, "unprofiled")] == [("Everything else", "everything else")]


def test_time_outside_the_profile_is_named_by_the_finding_that_explains_it() -> None:
    rows = [
        lost_time.LostTimeRow("outside_profile", None, 88.0),
        lost_time.LostTimeRow("idle", "launch_bound", 20.0),
    ]
    loader = replace(finding_of("queue"), explains=Explains(("data_wait",), topics=frozenset({"hidden"})))
    hidden = lost_time.hidden_time_finding([finding_of("other"), loader])
    sentence = lost_time.sentence(rank_of(), "unprofiled", rows, hidden)
    assert sentence.endswith("to time outside the profiled steps, most likely waiting for the data loader.")
    assert lost_time.hidden_time_finding([finding_of("other")]) is None


def test_copies_without_a_cause_are_listed_under_their_owner() -> None:
    assert lost_time.LostTimeRow("exposed_memcpy", "unattributed", 1.0).key == "exposed_memcpy"
    assert lost_time.LostTimeRow("idle", "unattributed", 1.0).key == "unattributed"
