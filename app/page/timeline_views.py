"""What the Timeline draws, read once per view and kept: going back and forth answers at once, and viewers share it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import Span
from sawtooth.app.page import current, frame

CACHED = 256  # views kept; one is at most a few hundred kB


@st.cache_data(max_entries=CACHED, show_spinner=False)
def extent(recording_id: str) -> Span:
    """Return the whole recording."""
    with frame.library().open(recording_id) as recording:
        return timeline.extent(recording)


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def streams(rank: RankResult) -> pd.DataFrame:
    """Return the streams of a device, busiest first."""
    with current.opened(rank) as view:
        return timeline.streams(view)


@st.cache_data(max_entries=CACHED, show_spinner=False)
def threads(recording_id: str) -> pd.DataFrame:
    """Return the host threads that matter."""
    with frame.library().open(recording_id) as recording:
        return timeline.threads(recording)


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def facts(rank: RankResult, start: int, end: int) -> timeline.InView | None:
    """Return what a view comes to."""
    with current.opened(rank) as view:
        return timeline.facts_in_view(view, Span(start, end))


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def gpu_bars(rank: RankResult, start: int, end: int, lanes: tuple[int, ...]) -> tuple[pd.DataFrame, dict[int, str]]:
    """Return the bars of GPU streams in a view, and the names in them."""
    with current.opened(rank) as view:
        bars = timeline.gpu_bars(view, Span(start, end), list(lanes))
        return bars, timeline.names_of(view.recording, list(bars["name_id"].dropna().unique()))


@st.cache_data(max_entries=CACHED, show_spinner=False)
def host_bars(recording_id: str, start: int, end: int, threads: tuple[int, ...]) -> tuple[pd.DataFrame, dict[int, str]]:
    """Return the bars of host threads in a view, and the names in them."""
    with frame.library().open(recording_id) as recording:
        bars = timeline.host_bars(recording, Span(start, end), list(threads))
        return bars, timeline.names_of(recording, list(bars["name_id"].dropna().unique()))


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def gap_bars(rank: RankResult, start: int, end: int) -> pd.DataFrame:
    """Return the bars of lost time in a view."""
    with current.opened(rank) as view:
        return timeline.gap_bars(view, Span(start, end))


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def operations(rank: RankResult, start: int, end: int) -> pd.DataFrame:
    """Return the GPU operations in a view by name."""
    with current.opened(rank) as view:
        return timeline.operations_in_view(view, Span(start, end))


@st.cache_data(max_entries=CACHED, show_spinner=False)
def operators(recording_id: str, start: int, end: int) -> pd.DataFrame:
    """Return what the host did in a view by name."""
    with frame.library().open(recording_id) as recording:
        return timeline.operators_in_view(recording, Span(start, end))


@st.cache_data(max_entries=CACHED, show_spinner=False, hash_funcs={RankResult: current.key_of})
def gaps(rank: RankResult, start: int, end: int) -> pd.DataFrame:
    """Return the longest pieces of lost time in a view."""
    with current.opened(rank) as view:
        return timeline.gaps_in_view(view, Span(start, end))
