"""Tests of the names that messages use for events that are not stored."""

import pytest

from sawtooth.ingest.trace.torch_json.facts import event_name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ph f", "Ends of arrows between events"),
        ("ph C", "Counters"),
        ("ph ?", "Events of Chrome's kind “?”"),
        ("some_tool", "Events of the category “some_tool”"),
    ],
)
def test_events_that_are_not_stored_have_names(key: str, name: str) -> None:
    assert event_name(key) == name
