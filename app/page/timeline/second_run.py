"""The second run on the timeline, below the first; the address stores the viewer's choice."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, current_result, frame
from sawtooth.app.page.timeline import tracks, views
from sawtooth.app.page.timeline.tracks import SecondRun
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.runs.listing import listed
from sawtooth.ingest.manifest import Manifest

RUN = "beside"  # Address parameter: the other run's id.
STEP = "aligned"  # Address parameter: the number (from 1) of the counted step at which both runs are aligned.
NAME_LENGTH = 40


def choose(result: RunResult, rank: RankResult) -> SecondRun | None:
    """Let the viewer choose another run, and the step at which both runs are aligned.

    The result is None if no other run is chosen, or if the chosen run has no GPU work.
    """
    chosen = st.query_params.get(RUN, "")
    runs = _offered(result, chosen)
    if not runs:
        return None
    names = {"": "None", **distinct_names(frame.data_folder().manifests(), NAME_LENGTH)}
    name = names[chosen] if chosen in runs else None
    with st.popover(
        f"With {fmt.markdown(name)}" if name else "With another run", icon=":material/stacks:", key="timeline-other"
    ):
        _pick("Another run, under this one", RUN, ["", *runs], names.__getitem__, chosen if chosen in runs else "")
        if chosen not in runs:
            return None
        other = current_result.run_result(runs[chosen])
        if other.lead is None:
            cards.small("That run has no GPU work to show below this one.")
            return None
        return SecondRun(other, other.lead, _aligned(rank, other.lead), (names[result.manifest.id], names[chosen]))


def _aligned(rank: RankResult, other: RankResult) -> int | None:
    """Return the index of the step at which both runs are aligned; None without counted steps."""
    common_steps = min(len(rank.counted), len(other.counted))
    if not common_steps:
        cards.small("One of the two runs has no steps, so the starts of both recordings are aligned.")
        return None
    steps = [str(number) for number in range(1, common_steps + 1)]
    in_address = st.query_params.get(STEP, "1")
    step = in_address if in_address in steps else "1"
    _pick("Align at the start of", STEP, steps, lambda number: f"Counted step {number}", step)
    return int(step) - 1


def _pick(label: str, key: str, options: list[str], shown: Callable[[str], str], chosen: str) -> None:
    """Offer ``options`` and write the choice into the address."""
    widget = f"timeline-{key}"
    st.session_state[widget] = chosen
    st.selectbox(label, options, format_func=shown, key=widget, on_change=lambda: _write(key, st.session_state[widget]))


def _write(key: str, value: str) -> None:
    if value:
        st.query_params[key] = value
    else:
        st.query_params.pop(key, None)


def _offered(result: RunResult, chosen: str) -> dict[str, Manifest]:
    """Return the other runs whose traces are on this server, newest first."""
    folder = frame.data_folder()
    runs = listed(folder.manifests(), (chosen, result.manifest.id))
    return {
        run.id: run
        for run in runs
        if run.id != result.manifest.id and run.traces and all(folder.recording_file(ref.id).exists() for ref in run.recordings)
    }


def sentence(rank: RankResult, second: SecondRun) -> str:
    """Say which lanes belong to which run, and which part of the other recording is outside the picture."""
    at = (
        f"Both are aligned at the start of counted step {second.step + 1}"
        if second.step is not None
        else "The starts of both recordings are aligned"
    )
    cut = -tracks.shift_ns(rank, second)
    extent = views.extent(second.rank.recording_id)
    before = (
        f"; the first {fmt.duration_ns(min(cut, extent.ns))} of B come before A's recording and are not shown"
        if cut > 0
        else ""
    )
    return f"{tracks.A} is this run, {tracks.B} is {second.names[1]}. {at}{before}. The tables below are about {tracks.A}."
