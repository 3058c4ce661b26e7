"""Tests of the text of lost time: the words of its cause, or else of its owner."""

from sawtooth.app.words.causes import loses_to, waits_for


def test_lost_time_goes_by_its_cause_or_its_owner() -> None:
    assert loses_to("idle", "data_wait") == loses_to("exposed_memcpy", "data_wait") == "waiting for the data loader"
    assert loses_to("idle", None) == "an idle GPU"
    assert loses_to("idle", "unattributed") == "waits that the trace does not explain"
    assert loses_to("exposed_memcpy", "unattributed") == "copies not overlapped by compute"
    assert loses_to("other_compute", None) == "other compute", "a late rank may lose time to computing"


def test_unavoidable_time_is_not_described_as_waiting() -> None:
    assert waits_for("comm_wait") == "It waits for another rank or stream."
    assert waits_for("launch_latency") == waits_for(None) == "It is idle for the rest of the time."
