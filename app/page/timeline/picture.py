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

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import Lane, Span
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import Telemetry
from sawtooth.app import format as fmt
from sawtooth.app.charts import timeline as colours
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.page import current, frame
from sawtooth.app.page.timeline import notes as timeline_notes
from sawtooth.app.page.timeline import views
from sawtooth.app.theme import Colour, colour_of_quantity
from sawtooth.app.words import timeline as words
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.quantities.registry import BY_COLUMN

_HERE = Path(__file__).resolve().parents[2] / "components" / "timeline"
PLACE = ("t0", "t1", "slice", "finding", "find", "lanes")  # of the address
HOST_LANES = {"operators": "operators", "calls": "calls", "python": "Python"}
STREAMS_MOST = 48  # lanes of a kind that are drawn, the busiest: more are not read, and each costs a row of every tile
THREADS_MOST = 24
TRACKS_MOST = 16  # ranks in one picture: each adds a few lanes and as many tiles
POINTS_MOST = 20_000  # of a telemetry line: an hour at 5 Hz, 200 kB
PANELS = (("%", ("util_pct", "tensor_active_pct", "dram_active_pct"), 100.0), ("W", ("power_w",), None))


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    return {part: (_HERE / f"timeline.{part}").read_text(encoding="utf-8") for part in ("html", "css", "js")}


def show(result: RunResult, rank: RankResult | None, recording_id: str, telemetry: Telemetry | None) -> None:
    """Show the picture of one device, with the other ranks under it where the reader wants them, or of a trace without GPU work."""
    files = _files()
    component = st.components.v2.component("sawtooth.timeline", html=files["html"], css=files["css"], js=files["js"])
    several = len({r.recording_id for r in result.ranks}) > 1
    others = several and st.toggle("All ranks on one clock", key="ranks", bind="query-params")
    key = f"timeline-{recording_id}-{rank.device if rank else 0}"
    component(
        key=key,
        data=_data(result, rank, recording_id, telemetry, bool(others)),
        on_place_change=lambda: _keep(key),
        on_note_change=lambda: _keep_note(key, result.manifest.id),
    )


def _keep(key: str) -> None:
    """Keep in the address where the component says the reader is."""
    place: Any = st.session_state[key].place or {}
    for name in PLACE:
        if name in place:
            st.query_params[name] = str(place[name])
        else:
            st.query_params.pop(name, None)


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


def _data(
    result: RunResult, rank: RankResult | None, recording_id: str, telemetry: Telemetry | None, others: bool
) -> dict[str, Any]:
    whole = views.extent(recording_id)
    own = {
        "recording": recording_id,
        "device": rank.device if rank else 0,
        "label": current.rank_label(rank) if rank else "",
        "offset": 0,
        "lanes": _lanes(rank, recording_id),
    }
    return {
        "api": f"/api/v1/runs/{result.manifest.id}/timeline",
        "dark": frame.dark(),
        "extent": whole.ns,
        "tracks": [own, *(_other_tracks(result, rank) if rank and others else ())],
        "steps": _steps(rank, whole) if rank else [],
        "lines": _lines(telemetry, whole) if telemetry else [],
        "kinds": {
            "gpu": _kinds(colours.work_colours()),
            "gaps": _kinds(colours.gap_colours()),
            **{source: _kinds(colours.HOST_KINDS) for source in HOST_LANES},
        },
        "findings": [
            {"rule": f.rule, "title": f.title, "gain": words.gain(f), "fix": f.fix, "marks": _marks(f.evidence, whole)}
            for f in result.findings
        ],
        "notes": timeline_notes.places(frame.data_folder().read_manifest(result.manifest.id).notes),
        "place": {name: st.query_params[name] for name in PLACE if name in st.query_params},
    }


def _other_tracks(result: RunResult, chosen: RankResult) -> list[dict[str, Any]]:
    """Return the other ranks on the chosen one's clock: lost time, streams, and the operators of the thread that calls most, folded."""
    clocks = {r.position: r.clock_offset_ns or 0 for r in result.communication.ranks} if result.communication else {}
    at = {id(r): views.extent(r.recording_id).start_ns - clocks.get(i, 0) for i, r in enumerate(result.ranks)}
    tracks: list[dict[str, Any]] = []
    for rank in result.ranks:
        if rank is chosen or len(tracks) + 1 >= TRACKS_MOST:
            continue
        lanes = _lanes(rank, rank.recording_id)
        host = [{**lane, "folded": True} for lane in lanes if lane["source"] == "operators"][:1]
        tracks.append(
            {
                "recording": rank.recording_id,
                "device": rank.device,
                "label": current.rank_label(rank),
                "offset": at[id(rank)] - at[id(chosen)],
                "lanes": [lane for lane in lanes if lane["source"] in ("gaps", "gpu")] + host,
            }
        )
    return tracks


def legend(rank: RankResult | None) -> tuple[LegendEntry, ...]:
    """Return what the colours of work and of lost time mean, of those that the device has."""
    if rank is None:
        return ()
    work, gaps = colours.work_colours(), colours.gap_colours()
    entries: dict[str, LegendEntry] = {}
    for row in rank.ledger:
        colour = gaps.get(row.cause) if row.cause else work.get(row.owner)
        if colour is not None and row.ns > 0:
            entries.setdefault(colour.label, LegendEntry(colour.label, colour.on(frame.dark()), colour.hatched, colour.texture))
    return tuple(entries.values())


def _kinds(known: dict[str, Colour]) -> dict[str, list[str]]:
    return {kind: [c.label, c.light, c.dark, c.texture] for kind, c in known.items()}


def _lanes(rank: RankResult | None, recording_id: str) -> list[dict[str, Any]]:
    """Return the lanes from top to bottom: lost time, streams, then threads, those that call the runtime most first."""
    known, names = views.lanes(recording_id, rank.device if rank else 0)
    shown: list[dict[str, Any]] = []
    if rank is not None:
        shown.append({"id": "gaps", "source": "gaps", "lane": 0, "label": "Lost time", "rows": 1})
    streams = sorted((lane for lane in known if lane.source == "gpu"), key=lambda lane: -lane.busy_ns)[:STREAMS_MOST]
    shown += [_lane(lane, f"Stream {lane.lane}") for lane in sorted(streams, key=lambda lane: lane.lane)]
    host = [lane for lane in known if lane.source in HOST_LANES]
    calls = {lane.lane: lane.slices for lane in host if lane.source == "calls"}
    threads = sorted({lane.lane for lane in host}, key=lambda thread: (-calls.get(thread, 0), thread))[:THREADS_MOST]
    for thread in threads:
        of = {lane.source: lane for lane in host if lane.lane == thread}
        name = thread_name(names.get(thread, f"thread {thread}"))
        shown += [_lane(of[source], f"{name} {what}") for source, what in HOST_LANES.items() if source in of]
    return shown


def _lane(lane: Lane, label: str) -> dict[str, Any]:
    folded = {"folded": True} if lane.source == "python" else {}
    return {
        "id": f"{lane.source}-{lane.lane}",
        "source": lane.source,
        "lane": lane.lane,
        "label": label,
        "rows": lane.rows,
        **folded,
    }


def thread_name(label: str) -> str:
    """Return a thread's name without its process: thread 936."""
    return fmt.clean(label.split(" (", 1)[0], 14)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current.key_of})
def _steps(rank: RankResult, whole: Span) -> list[tuple[int, int, str, bool]]:
    """Return of each step start, end, name and whether it counts, as ``SentStep`` of the component says; made once, since thousands take 0.1 s."""
    return [
        (
            int(start) - whole.start_ns,
            int(end) - whole.start_ns,
            fmt.clean(str(name), 60) + (f" (not counted: {why})" if isinstance(why, str) and why else ""),
            bool(counted),
        )
        for start, end, name, counted, why in rank.steps[
            ["start_ns", "end_ns", "name", "counted", "excluded_because"]
        ].itertuples(index=False)
    ]


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
