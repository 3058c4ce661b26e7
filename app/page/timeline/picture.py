"""The timeline's picture: the data for the component in ``app/components/timeline``.

The component reads its tiles from ``app/api/timeline.py``. It reports the visible range when the user stops moving, and the
page writes that range into the address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.run.job import LedgerRow
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app import templates
from sawtooth.app.charts import timeline as colours
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.page import address, frame
from sawtooth.app.page.timeline import notes as timeline_notes
from sawtooth.app.page.timeline import overview, tracks, views
from sawtooth.app.page.timeline.tracks import SecondRun
from sawtooth.app.theme import ACCENT, HOST_KINDS, MUTED, STEPS, UNKNOWN, Colour, colour_of_quantity
from sawtooth.app.words import timeline as words
from sawtooth.app.words.answer.step import answer_of
from sawtooth.app.words.headline import action
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.quantities.registry import BY_COLUMN

_HERE = Path(__file__).resolve().parents[2] / "components" / "timeline"
VISIT = "timeline_visit"  # Session key: the slice to which a selected table row moves the timeline.
DRAWN_KEY = "timeline_drawn"  # Session key: the component has reported that the picture is complete.
MAX_POINTS = 20_000  # Points of a telemetry line. One hour at 5 Hz, which takes 200 kB.
NAMED_FROM = 0.01  # Share of the steps. A smaller part is hardly visible, and a long legend pushes the picture down.
HOST_NAMED = ("annotation", "op", "launch", "call", "sync")  # Kinds of host slices in the legend; others are named on hover.
# The first line is the activity that the Verdict shows; the others are folded.
PANELS = (("%", ("tensor_active_pct", "dram_active_pct"), 100.0), ("W", ("power_w",), None))


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    files = {part: (_HERE / f"timeline.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}
    return files | {"css": (templates.FOLDER / "textures.css").read_text(encoding="utf-8") + files["css"]}


def show(
    result: RunResult,
    rank: RankResult | None,
    recording_id: str,
    telemetry: TelemetrySeries | None,
    second: SecondRun | None = None,
    *,
    all_ranks_shown: bool = False,
    signal: str | None = None,
) -> None:
    """Show the picture of one device, or of a trace without GPU work.

    With ``all_ranks_shown``, the tracks of the job's other ranks are below it. ``second`` is another run to show below it. ``signal`` is
    the column of the telemetry that shows best how busy the GPU is.
    """
    files = _files()
    component = st.components.v2.component("sawtooth.timeline", html=files["html"], css=files["css"], js=files["js"])
    shown = _tracks(result, rank, recording_id, second, all_ranks_shown)
    key = f"timeline-{recording_id}-{rank.device if rank else 0}"
    with st.container(key="timeline_picture"):  # This key reserves the height until the component is drawn.
        component(
            key=key,
            data=_data(result, rank, shown, telemetry, signal)
            | {"heat": overview.heat(result, shown) if all_ranks_shown else []},
            on_place_change=lambda: _keep(key),
            on_note_change=lambda: _keep_note(key, result.manifest.id),
            on_drawn_change=lambda: st.session_state.update({DRAWN_KEY: True}),
        )


def all_ranks(result: RunResult) -> bool:
    """Return whether to show the other ranks too, as the viewer chooses; False if there is only one rank."""
    several = len({rank.recording_id for rank in result.ranks}) > 1
    return several and st.toggle("All ranks on one clock", value=True, key="ranks", bind="query-params")


def begin() -> None:
    """Forget that the picture is complete, at the start of each full run of the page."""
    st.session_state.pop(DRAWN_KEY, None)


def drawn() -> bool:
    """Return whether the browser has drawn the complete picture.

    Other parts wait until then, because they would delay it: a table alone is a megabyte of script.
    """
    return DRAWN_KEY in st.session_state


def _keep(key: str) -> None:
    """Write the visible range that the component reports into the address."""
    place: Any = st.session_state[key].place or {}
    address.write({name: str(place[name]) for name in address.RANGE if name in place}, address.RANGE)


def visit(source: str, slice_id: int) -> None:
    """Move the timeline to a slice of this run, when the page runs next."""
    before = st.session_state.get(VISIT)
    st.session_state[VISIT] = {"slice": f"0:{source}:{slice_id}", "turn": before["turn"] + 1 if before else 1}


def _keep_note(key: str, run: str) -> None:
    note: Any = st.session_state[key].note
    if note:
        try:
            timeline_notes.keep(run, note)
        except SawtoothError as error:
            st.toast(str(error))


def range_in_address(extent: TimelineSpan) -> TimelineSpan:
    """Return the time range in the address; the whole recording if it is missing or invalid."""
    try:
        start, end = float(st.query_params["t0"]), float(st.query_params["t1"])
        return timeline.span_of_ms(start, end, extent.start_ns).within(extent)
    except (KeyError, ValueError, OverflowError):
        return extent


def _tracks(
    result: RunResult, rank: RankResult | None, recording_id: str, second: SecondRun | None, all_ranks_shown: bool
) -> list[dict[str, Any]]:
    """Return the track of the device, and the tracks of other ranks or of the other run below it."""
    if rank is not None and second is not None:
        return tracks.pair(result, rank, second)
    return (
        tracks.all_ranks(result, rank)
        if rank is not None and all_ranks_shown
        else [tracks.device_track(result, rank, recording_id)]
    )


def _data(
    result: RunResult,
    rank: RankResult | None,
    shown: list[dict[str, Any]],
    telemetry: TelemetrySeries | None,
    signal: str | None,
) -> dict[str, Any]:
    extent = views.extent(shown[0]["recording"])
    return {
        "dark": frame.is_dark(),
        "extent": max([extent.ns, *(track["ends"] for track in shown if "ends" in track)]),
        "tracks": shown,
        "steps": tracks.steps(rank, extent) if rank else {"times": "", "names": []},
        "lines": _lines(telemetry, extent, signal) if telemetry else [],
        "kinds": {
            "gpu": _kinds(colours.work_colours()),
            "gaps": _kinds(colours.gap_colours(names_of(result, rank))),
            "steps": _kinds(STEPS),
            "page": _kinds({"accent": ACCENT, "muted": MUTED, "unknown": UNKNOWN}),
            **{source: _kinds(HOST_KINDS) for source in tracks.HOST_LANES},
        },
        "findings": [
            {
                "rule": f.rule,
                "action": action(f),
                "title": f.title,
                "gain": words.gain(f),
                "fix": f.fix,
                "marks": _marks(f.evidence, extent),
            }
            for f in result.findings
        ],
        "scale": overview.scale(rank),
        "notes": timeline_notes.noted_ranges(frame.data_folder().read_manifest(result.manifest.id).notes),
        "visit": st.session_state.get(VISIT),
        "waits": not drawn(),
        "place": {name: st.query_params[name] for name in address.RANGE if name in st.query_params},
    }


def legend(result: RunResult, rank: RankResult | None, *, all_ranks_shown: bool = False) -> tuple[LegendEntry, ...]:
    """Return the legend for the colours of lost time, GPU streams and the host, each group with a heading.

    Lost time and streams are sorted by their share of the steps. Colours with a very small share are left out, because their
    names appear on hover. With ``all_ranks_shown``, the colours of the job's other ranks follow those of ``rank``.
    """
    if rank is None:
        return ()
    work, gaps = colours.work_colours(), colours.gap_colours(names_of(result, rank))
    ranks = [rank, *(each for each in result.ranks if all_ranks_shown and each is not rank)]
    shares = [row for each in ranks for row in _large(each)]
    # A copy is drawn on its stream, but the time that it owns counts as lost time.
    has_causes = any(row.cause is not None for row in shares)
    lost = [gaps.get(known_by(row.owner, row.cause)) for row in shares if row.cause is not None or not has_causes]
    streams = [work.get(row.owner) for row in shares]
    named = {(colour.light, colour.texture) for colour in (*lost, *streams) if colour is not None}
    # A wait has one colour as lost time and as a call of the host; the legend names it once.
    host = [colour for kind in HOST_NAMED if ((colour := HOST_KINDS[kind]).light, colour.texture) not in named]
    return (*_entries("Lost time", lost), *_entries("GPU streams", streams), *_entries("Host", host))


def _large(rank: RankResult) -> list[LedgerRow]:
    """Return the rows of a rank's ledger that have a visible share of the steps, largest first."""
    least = NAMED_FROM * sum(row.ns for row in rank.ledger)
    return sorted((row for row in rank.ledger if row.ns > least), key=lambda row: -row.ns)


def names_of(result: RunResult, rank: RankResult | None) -> Mapping[str, str]:
    """Return the names that the Verdict gives to this device's waits, by cause."""
    answer = answer_of(result, rank)
    return answer.names if answer is not None else {}


def _entries(heading: str, shown: Sequence[Colour | None]) -> list[LegendEntry]:
    named = {c.label: LegendEntry(c.label, c.on(frame.is_dark()), c.hatched, c.texture) for c in shown if c is not None}
    return [LegendEntry(heading, "", heading=True), *named.values()] if named else []


def _kinds(colours: dict[str, Colour]) -> dict[str, list[str]]:
    return {kind: [c.label, c.light, c.dark, c.texture] for kind, c in colours.items()}


def _lines(telemetry: TelemetrySeries, extent: TimelineSpan, signal: str | None) -> list[dict[str, Any]]:
    part = series.with_neighbours(telemetry, extent)
    lines = []
    for unit, columns, top in PANELS:
        for column in (signal, *columns) if signal and unit == "%" else columns:
            if part.has(column):
                times, values = series.line(part, column)
                thin = slice(None, None, max(-(-len(times) // MAX_POINTS), 1))
                colour = colour_of_quantity(column)
                lines.append(
                    {
                        "label": BY_COLUMN[column].label,
                        "unit": unit,
                        "light": colour.light,
                        "dark": colour.dark,
                        "top": top,
                        "times": (np.asarray(times)[thin] - extent.start_ns).tolist(),
                        "values": [None if pd.isna(v) else round(float(v), 3) for v in np.asarray(values)[thin]],
                    }
                )
    return lines


def _marks(evidence: tuple[dict[str, Any], ...], extent: TimelineSpan) -> list[dict[str, int]]:
    timed = [row for row in evidence if row.get("start_ns") is not None and row.get("end_ns") is not None]
    return [{"start": int(row["start_ns"]) - extent.start_ns, "end": int(row["end_ns"]) - extent.start_ns} for row in timed]
