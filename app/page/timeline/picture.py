"""The timeline's picture: what the component in ``app/components/timeline`` draws, and where in it the reader is, which the address holds.

The component reads its tiles from ``app/api/timeline.py``. It tells the page a place once the reader rests; the page keeps it in the address.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import Span
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import Telemetry
from sawtooth.app.charts import timeline as colours
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.page import address, frame
from sawtooth.app.page.timeline import notes as timeline_notes
from sawtooth.app.page.timeline import tracks, views
from sawtooth.app.page.timeline.tracks import Beside
from sawtooth.app.theme import Colour, colour_of_quantity
from sawtooth.app.words import timeline as words
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.quantities.registry import BY_COLUMN

_HERE = Path(__file__).resolve().parents[2] / "components" / "timeline"
VISIT = "timeline_visit"  # of the session: what a row of the tables leads to
DRAWN = "timeline_drawn"  # of the session: the component has told that the picture is whole
POINTS_MOST = 20_000  # of a telemetry line: an hour at 5 Hz, 200 kB
NAMED_FROM = 0.01  # of the steps: the colour of less is a sliver, and a legend of many lines pushes the picture down
PANELS = (("%", ("util_pct", "tensor_active_pct", "dram_active_pct"), 100.0), ("W", ("power_w",), None))


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    return {part: (_HERE / f"timeline.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}


def show(
    result: RunResult, rank: RankResult | None, recording_id: str, telemetry: Telemetry | None, beside: Beside | None = None
) -> None:
    """Show the picture of one device, with the other ranks or a run ``beside`` it under it, or of a trace without GPU work."""
    files = _files()
    component = st.components.v2.component("sawtooth.timeline", html=files["html"], css=files["css"], js=files["js"])
    several = beside is None and len({r.recording_id for r in result.ranks}) > 1
    others = several and st.toggle("All ranks on one clock", key="ranks", bind="query-params")
    shown = _tracks(result, rank, recording_id, beside, bool(others))
    key = f"timeline-{recording_id}-{rank.device if rank else 0}"
    component(
        key=key,
        data=_data(result, rank, shown, telemetry),
        on_place_change=lambda: _keep(key),
        on_note_change=lambda: _keep_note(key, result.manifest.id),
        on_drawn_change=lambda: st.session_state.update({DRAWN: True}),
    )


def begin() -> None:
    """Say that the whole page runs anew: what stands under the picture waits for it."""
    st.session_state.pop(DRAWN, None)


def drawn() -> bool:
    """Tell whether the picture is whole in the browser. Until then nothing else is to take its time: a table alone is a megabyte of script."""
    return DRAWN in st.session_state


def _keep(key: str) -> None:
    """Keep in the address where the component says the reader is."""
    place: Any = st.session_state[key].place or {}
    address.write({name: str(place[name]) for name in frame.PLACE if name in place}, frame.PLACE)


def visit(source: str, slice_id: int) -> None:
    """Lead the reader to a slice of this run: the component hears of it with the next run of the page."""
    before = st.session_state.get(VISIT)
    st.session_state[VISIT] = {"slice": f"0:{source}:{slice_id}", "turn": before["turn"] + 1 if before else 1}


def _keep_note(key: str, run: str) -> None:
    note: Any = st.session_state[key].note
    if note:
        try:
            timeline_notes.keep(run, note)
        except SawtoothError as error:
            st.toast(str(error))


def asked(whole: Span) -> Span:
    """Return the range of the address, the whole recording where it has none or nonsense."""
    try:
        start, end = float(st.query_params["t0"]), float(st.query_params["t1"])
        return timeline.span_of_ms(start, end, whole.start_ns).within(whole)
    except (KeyError, ValueError, OverflowError):
        return whole


def _tracks(
    result: RunResult, rank: RankResult | None, recording_id: str, beside: Beside | None, others: bool
) -> list[dict[str, Any]]:
    """Return the device's track and those under it."""
    if rank is not None and beside is not None:
        return tracks.pair(result, rank, beside)
    return tracks.all_ranks(result, rank) if rank is not None and others else [tracks.own(result, rank, recording_id)]


def _data(
    result: RunResult, rank: RankResult | None, shown: list[dict[str, Any]], telemetry: Telemetry | None
) -> dict[str, Any]:
    whole = views.extent(shown[0]["recording"])
    return {
        "dark": frame.dark(),
        "extent": max([whole.ns, *(track["ends"] for track in shown if "ends" in track)]),
        "tracks": shown,
        "steps": tracks.steps(rank, whole) if rank else {"times": "", "names": []},
        "lines": _lines(telemetry, whole) if telemetry else [],
        "kinds": {
            "gpu": _kinds(colours.work_colours()),
            "gaps": _kinds(colours.gap_colours()),
            **{source: _kinds(colours.HOST_KINDS) for source in tracks.HOST_LANES},
        },
        "findings": [
            {"rule": f.rule, "title": f.title, "gain": words.gain(f), "fix": f.fix, "marks": _marks(f.evidence, whole)}
            for f in result.findings
        ],
        "notes": timeline_notes.places(frame.data_folder().read_manifest(result.manifest.id).notes),
        "visit": st.session_state.get(VISIT),
        "waits": not drawn(),
        "place": {name: st.query_params[name] for name in frame.PLACE if name in st.query_params},
    }


def legend(rank: RankResult | None) -> tuple[LegendEntry, ...]:
    """Return what the colours of lost time and of the streams mean, each behind its heading, those that fill most of the steps first; what is a sliver of them is named where it is pointed at."""
    if rank is None:
        return ()
    work, gaps = colours.work_colours(), colours.gap_colours()
    least = NAMED_FROM * sum(row.ns for row in rank.ledger)
    shares = sorted((row for row in rank.ledger if row.ns > least), key=lambda row: -row.ns)
    # time that a copy owns is lost, and the copy is drawn on its stream
    known = any(row.cause is not None for row in shares)
    lost = [gaps.get(known_by(row.owner, row.cause)) for row in shares if row.cause is not None or not known]
    streams = [work.get(row.owner) for row in shares]
    return (*_entries("Lost time", lost), *_entries("GPU streams", streams))


def _entries(heading: str, shown: list[Colour | None]) -> list[LegendEntry]:
    named = {c.label: LegendEntry(c.label, c.on(frame.dark()), c.hatched, c.texture) for c in shown if c is not None}
    return [LegendEntry(heading, "", heading=True), *named.values()] if named else []


def _kinds(known: dict[str, Colour]) -> dict[str, list[str]]:
    return {kind: [c.label, c.light, c.dark, c.texture] for kind, c in known.items()}


def _lines(telemetry: Telemetry, whole: Span) -> list[dict[str, Any]]:
    part = series.around(telemetry, whole)
    lines = []
    for unit, columns, top in PANELS:
        for column in columns:
            if part.has(column):
                times, values = series.line(part, column)
                thin = slice(None, None, max(-(-len(times) // POINTS_MOST), 1))
                colour = colour_of_quantity(column)
                lines.append(
                    {
                        "label": BY_COLUMN[column].label,
                        "unit": unit,
                        "light": colour.light,
                        "dark": colour.dark,
                        "top": top,
                        "times": (np.asarray(times)[thin] - whole.start_ns).tolist(),
                        "values": [None if pd.isna(v) else round(float(v), 3) for v in np.asarray(values)[thin]],
                    }
                )
    return lines


def _marks(evidence: tuple[dict[str, Any], ...], whole: Span) -> list[dict[str, int]]:
    timed = [row for row in evidence if row.get("start_ns") is not None and row.get("end_ns") is not None]
    return [{"start": int(row["start_ns"]) - whole.start_ns, "end": int(row["end_ns"]) - whole.start_ns} for row in timed]
