"""Tests of the longest slice of a name, to which a row of the timeline's tables links."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline, timeline_details
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.tables.timeline_details import longest_slice
from sawtooth.ingest.errors import NotFoundError, UsageError
from tests.support import findings_of as common
from tests.support.chrome_trace import ChromeTrace


@pytest.fixture
def rank(tmp_path: Path):
    """Return a rank with a kernel of 5, 20 and 9 µs and an operator of 4 and 7 µs.

    The operator is around the first two launches.
    """
    trace = ChromeTrace()
    trace.op("aten::relu", 98.0, 102.0)
    trace.op("aten::relu", 197.0, 204.0)
    for at, length in ((100.0, 5.0), (200.0, 20.0), (300.0, 9.0)):
        trace.launch((at, at + 1), (at + 10, at + 10 + length), "relu_kernel")
    recording_id = common.recording_of(trace.write(tmp_path / "t.json"))
    with common.library().open(recording_id) as recording:
        yield RankView(recording, 0, 0)


def test_the_longest_slice_of_a_name_in_the_view_is_found(rank: RankView) -> None:
    complete = timeline.extent(rank.recording)
    lengths = dict(rank.recording.rows("SELECT gpu_op_id, dur_ns FROM gpu_ops"))
    source, longest = longest_slice(rank, "relu_kernel", complete, host=False) or ("", -1)
    assert (source, lengths[longest]) == ("gpu", 20_000)
    later = TimelineSpan(complete.end_ns - 5_000, complete.end_ns)  # Inside the third only.
    _, third = longest_slice(rank, "relu_kernel", later, host=False) or ("", -1)
    assert lengths[third] == 9_000
    source, operator = longest_slice(rank, "aten::relu", complete, host=True) or ("", -1)
    assert source == "operators"
    assert rank.recording.rows("SELECT dur_ns FROM cpu_ops WHERE cpu_op_id = ?", [operator]) == [(7_000,)]


def test_a_missing_name_has_no_longest_slice(rank: RankView) -> None:
    complete = timeline.extent(rank.recording)
    assert longest_slice(rank, "relu_kernel", complete, host=True) is None
    assert longest_slice(rank, "nothing", complete, host=False) is None


def test_python_calls_are_nested_in_their_callers(stacks: Recording) -> None:
    rows = stacks.rows("SELECT python_call_id, parent_id, depth FROM python_calls JOIN python_depths USING (python_call_id)")
    depth = {call: d for call, _, d in rows}
    below = [(d, depth[parent]) for _, parent, d in rows if parent is not None]
    assert len(below) > 1000
    assert all(d > above for d, above in below)
    assert max(depth.values()) > 10


def test_a_kernel_links_to_its_launch_operator_and_line(stacks: Recording) -> None:
    rank = RankView(stacks, 0, 1)
    (kernel,) = stacks.rows(
        "SELECT gpu_op_id FROM named_gpu_ops JOIN runtime_calls c USING (call_id) WHERE kind = 'kernel' AND named_gpu_ops.cpu_op_id IS NOT NULL LIMIT 1"
    )[0]
    details = timeline_details.slice_details(rank, "gpu", kernel)
    launch = next(link for link in details.links if link["role"] == "launch")
    assert launch["start"] <= details.row["start"]
    assert [link["role"] for link in details.links] == ["launch", "operator"]
    assert (
        details.same["count"] == stacks.rows("SELECT count(*) FROM gpu_ops WHERE name_id = ?", [details.row["name_id"]])[0][0]
    )
    back = timeline_details.slice_details(rank, "calls", launch["id"])
    assert kernel in [link["id"] for link in back.links if link["role"] == "kernel"]
    assert any("(" in frame for frame in details.stack)


def test_search_visits_every_match_once_and_starts_again(gpt: Recording) -> None:
    rank = RankView(gpt, 0, 1)
    words = gpt.rows("SELECT name FROM names WHERE name LIKE '%Optimizer%' LIMIT 1")[0][0]
    first = timeline_details.find(rank, words, -1, True)
    assert first["position"] == 1
    starts, at = [], -1
    for _ in range(first["count"]):
        found = timeline_details.find(rank, words, at, True)
        starts.append(found["hit"]["start"])
        at = found["hit"]["start"]
    assert starts == sorted(starts)
    assert timeline_details.find(rank, words, at, True)["position"] == 1
    assert timeline_details.find(rank, words, 0, False)["position"] == first["count"]
    assert timeline_details.find(rank, "no such name at all", 0, True) == {"count": 0, "position": 0, "hit": None}
    assert timeline_details.find(rank, "%", 0, True)["count"] == 0, "a sign of SQL is a plain character"
    with pytest.raises(UsageError):
        timeline_details.find(rank, "  ", 0, True)


def test_occurrences_of_a_cause_are_its_gaps(gpt: Recording) -> None:
    (cause,) = gpt.rows("SELECT cause FROM gaps GROUP BY 1 ORDER BY count(*) DESC LIMIT 1")[0]
    count = gpt.rows("SELECT count(DISTINCT gap) FROM gaps WHERE cause = ?", [cause])[0][0]
    found = timeline_details.occurrences(RankView(gpt, 0, 1), (cause,), 100_000)
    assert len(found) == count
    assert found == sorted(found)
    assert len(timeline_details.occurrences(RankView(gpt, 0, 1), (cause,), 7)) == min(7, count)


def test_lost_time_is_identified_by_its_start(gpt: Recording) -> None:
    origin = timeline.extent(gpt).start_ns
    start, cause = gpt.rows("SELECT start_ns, cause FROM gaps ORDER BY end_ns - start_ns DESC LIMIT 1")[0]
    details = timeline_details.gap_details(RankView(gpt, 0, 1), start - origin)
    assert details["cause"] == cause
    with pytest.raises(NotFoundError):
        timeline_details.gap_details(RankView(gpt, 0, 1), start - origin + 1)
    with pytest.raises(NotFoundError):
        timeline_details.slice_details(RankView(gpt, 0, 1), "gpu", 10**9)
