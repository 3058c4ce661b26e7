"""Cached data about ranges of the timeline, shared by all viewers."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline, timeline_details
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.app.page import current_result, frame

MAX_CACHED_RANGES = 256  # Cached ranges; each takes at most a few hundred kB.


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False)
def extent(recording_id: str) -> TimelineSpan:
    """Return the time span of the whole recording."""
    with frame.library().open(recording_id) as recording:
        return timeline.extent(recording)


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner="Adding up the recording for its timeline, which is done once …")
def summed(recording_id: str) -> None:
    """Compute the sums of a large recording if they are missing, which takes a few seconds."""
    with frame.library().open(recording_id, sums=True):
        pass


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False)
def lanes(recording_id: str, device: int) -> tuple[list[timeline.Lane], dict[int, str], set[int]]:
    """Return the lanes of a device and the host, the threads' names, and the backward pass's threads."""
    with frame.library().open(recording_id, sums=True) as recording:
        return timeline.lanes(recording, device), timeline.threads(recording), timeline.backward_threads(recording)


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def facts(rank: RankResult, start: int, end: int) -> timeline.ViewSums | None:
    """Return the totals of a range."""
    with current_result.opened(rank, sums=True) as view:
        return timeline.facts_in_view(view, TimelineSpan(start, end))


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def operations(rank: RankResult, start: int, end: int) -> pd.DataFrame:
    """Return the GPU operations in a range, by name."""
    with current_result.opened(rank, sums=True) as view:
        return timeline.operations_in_view(view, TimelineSpan(start, end))


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False)
def operators(recording_id: str, start: int, end: int) -> pd.DataFrame:
    """Return the host's operations in a range, by name."""
    with frame.library().open(recording_id, sums=True) as recording:
        return timeline.operators_in_view(recording, TimelineSpan(start, end))


@st.cache_data(max_entries=MAX_CACHED_RANGES, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def gaps(rank: RankResult, start: int, end: int) -> pd.DataFrame:
    """Return the longest pieces of lost time in a range."""
    with current_result.opened(rank) as view:
        return timeline.gaps_in_view(view, TimelineSpan(start, end))


def longest_named(
    rank: RankResult | None, recording_id: str, name: str, view: TimelineSpan, *, host: bool
) -> tuple[str, int] | None:
    """Return the source and the id of the longest slice called ``name`` in a range; None if there is none."""
    if rank is None:
        with frame.library().open(recording_id) as recording:
            return timeline_details.longest_slice(RankView(recording, 0, 0), name, view, host=host)
    with current_result.opened(rank) as opened:
        return timeline_details.longest_slice(opened, name, view, host=host)
