"""Tests of the flight recorder: the hanging collective and the missing ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sawtooth.analysis.dumps.hung_collective import flight_report
from sawtooth.app.reports.flight_recorder import details, headline, plain_data, ranks_text, rows, text
from sawtooth.ingest.dumps.flight_recorder import read_dumps
from tests.support.dumps import call, flight, p2p, write_flight

FOUR = {"0": [0, 1, 2, 3]}


def said(tmp_path: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> str:
    return headline(flight_report(read_dumps(write_flight(tmp_path / "dumps", dumps, as_json=as_json))))


def waiting(seq: int, **more: Any) -> list[dict[str, Any]]:
    """Return the calls of a rank that completed all calls before ``seq`` and waits in it."""
    return [*(call(item) for item in range(1, seq)), call(seq, state="started", **more)]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_has_not_called_is_named(tmp_path: Path, as_json: bool) -> None:
    dumps = {rank: flight(waiting(12), FOUR) for rank in (0, 1, 2)} | {3: flight([call(s) for s in range(1, 12)], FOUR)}
    files = write_flight(tmp_path / "dumps", dumps, as_json=as_json)
    report = flight_report(read_dumps(files))
    assert headline(report) == "Rank 3 has not called all_reduce 12 of group group_0; ranks 0 to 2 wait in it."
    assert rows(report.hangs[0])[3] == ("3", "not called", "all_reduce 11 of group group_0", "", "train (train.py:51)")
    assert plain_data(report)["hangs"][0]["missing"] == [3]
    assert "Float [8]" in details(report)[0] and "2027-01-15" in details(report)[0]  # 1.8e9 s after 1970
    assert "Rank 3 has not called" in text(report)


def test_a_rank_that_waits_in_another_group_is_followed(tmp_path: Path) -> None:
    groups = {"0": [0, 1], "1": [1, 2]}
    dumps = {
        0: flight([call(5, state="started")], groups),
        1: flight([call(4), call(7, op="all_gather", state="scheduled", group="1")], groups),
        2: flight([call(6, op="all_gather", group="1")], groups),
    }
    report = flight_report(read_dumps(write_flight(tmp_path / "dumps", dumps)))
    assert headline(report) == "Rank 2 has not called all_gather 7 of group group_1; rank 1 waits in it."
    assert details(report)[-1] == "Also waiting: all_reduce 5 of group group_0 on rank 0."
    assert rows(report.hangs[1])[1][3] == "all_gather 7 of group group_1"


def test_ranks_without_a_dump_are_not_called_missing(tmp_path: Path) -> None:
    report = flight_report(
        read_dumps(write_flight(tmp_path / "dumps", {0: flight(waiting(3), FOUR), 2: flight([call(2)], FOUR)}))
    )
    assert headline(report) == "Rank 2 has not called all_reduce 3 of group group_0; rank 0 waits in it."
    assert "There is no dump of ranks 1 and 3, which may be missing too." in details(report)


def test_the_last_sequence_number_counts_if_the_buffer_dropped_the_call(tmp_path: Path) -> None:
    status = {"0": {"last_enqueued_collective": 3, "last_started_collective": 3, "last_completed_collective": 2}}
    dumps = {0: flight(waiting(3), {"0": [0, 1]}), 1: flight([], {"0": [0, 1]}, pg_status=status)}
    assert said(tmp_path, dumps).startswith("All 2 ranks have called all_reduce 3 of group group_0, but it does not complete")


def test_different_calls_and_sizes_are_named(tmp_path: Path) -> None:
    two = {"0": [0, 1, 2]}
    other = {rank: flight(waiting(4, op="all_gather" if rank == 1 else "all_reduce"), two) for rank in range(3)}
    assert said(tmp_path, other) == (
        "Ranks disagree on call 4 of group group_0: all_reduce on ranks 0 and 2, all_gather on rank 1."
    )
    sizes = {rank: flight(waiting(4, size=16 if rank == 2 else 8), two) for rank in range(3)}
    assert (
        said(tmp_path, sizes)
        == "The sizes of all_reduce 4 of group group_0 differ: Float [8] on ranks 0 and 1, Float [16] on rank 2."
    )
    gathered = {rank: flight(waiting(4, op="all_to_all", size=8 + rank), two) for rank in range(3)}  # The sizes may differ.
    assert "it does not complete" in said(tmp_path, gathered)


def test_one_dump_names_the_call_and_what_is_unknown(tmp_path: Path) -> None:
    assert said(tmp_path, {1: flight(waiting(9), FOUR)}) == (
        "Rank 1 waits in all_reduce 9 of group group_0. Without dumps of the other ranks, the missing ranks are not known."
    )


def test_a_send_without_its_receive_is_named(tmp_path: Path) -> None:
    two = {"0": [4, 5]}  # The numbers in these names are ranks within the group.
    dumps = {
        4: flight([p2p("send 0->1", 1), p2p("send 0->1", 2, "started")], two),
        5: flight([p2p("recv 1<-0", 1)], two),
    }
    assert said(tmp_path, dumps) == "Rank 4 waits to send to rank 5 in group group_0; rank 5 has not made the matching call."
    dumps[5]["entries"].append(p2p("recv 1<-0", 2, "started"))
    assert said(tmp_path, dumps).startswith("2 recorded calls did not complete, although no rank is missing")
    assert (
        said(tmp_path / "alone", {4: dumps[4]})
        == "Rank 4 waits to send to rank 5 in group group_0; there is no dump of rank 5."
    )


def test_a_running_job_has_no_hang_and_its_late_rank_is_named(tmp_path: Path) -> None:
    dumps = {
        rank: flight([call(seq, at_ms=10 * seq + (4 if rank == 2 else 0)) for seq in range(1, 11)], FOUR) for rank in range(4)
    }
    report = flight_report(read_dumps(write_flight(tmp_path / "dumps", dumps)))
    assert headline(report) == "No collective hangs: all 40 recorded calls are completed on ranks 0 to 3."
    (late,) = details(report)
    assert late.replace("\xa0", " ") == (
        "By the hosts' clocks, rank 2 is 4.00 ms later than the first rank on average in the collectives of group 0. It is the last rank in 100 % of 10 calls."
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((3,), "rank 3"), ((0, 1), "ranks 0 and 1"), ((0, 1, 2, 5), "ranks 0 to 2 and 5"), ((1, 3, 5), "ranks 1, 3 and 5")],
)
def test_ranks_are_listed_in_words(ranks: tuple[int, ...], words: str) -> None:
    assert ranks_text(ranks) == words
