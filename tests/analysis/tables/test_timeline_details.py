"""Tests of the longest slice of a name, to which a row of the timeline's tables links."""

from pathlib import Path

import pytest

from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.tables.timeline_details import longest_named
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
    whole = timeline.extent(rank.recording)
    lengths = dict(rank.recording.rows("SELECT gpu_op_id, dur_ns FROM gpu_ops"))
    source, longest = longest_named(rank, "relu_kernel", whole, host=False) or ("", -1)
    assert (source, lengths[longest]) == ("gpu", 20_000)
    later = TimelineSpan(whole.end_ns - 5_000, whole.end_ns)  # inside the third alone
    _, third = longest_named(rank, "relu_kernel", later, host=False) or ("", -1)
    assert lengths[third] == 9_000
    source, operator = longest_named(rank, "aten::relu", whole, host=True) or ("", -1)
    assert source == "operators"
    assert rank.recording.rows("SELECT dur_ns FROM cpu_ops WHERE cpu_op_id = ?", [operator]) == [(7_000,)]


def test_a_missing_name_has_no_longest_slice(rank: RankView) -> None:
    whole = timeline.extent(rank.recording)
    assert longest_named(rank, "relu_kernel", whole, host=True) is None
    assert longest_named(rank, "nothing", whole, host=False) is None
