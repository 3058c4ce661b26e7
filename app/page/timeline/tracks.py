"""The tracks of the timeline: the lanes of a device, and of other ranks or another run below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables.timeline import Lane, TimelineSpan
from sawtooth.app import format as fmt
from sawtooth.app.page import current_result
from sawtooth.app.page.timeline import views

HOST_LANES = {"operators": "operators", "calls": "calls", "python": "Python"}
# Largest number of streams and threads that are drawn, the busiest first. Nobody reads more, and each lane adds a row to
# every tile.
MAX_STREAMS = 48
MAX_THREADS = 24
MAX_TRACKS = 16  # Ranks in one picture. Each adds a few lanes and as many tiles.
# Busy share of the recording. The row of a less busy thread is almost empty, so such threads are hidden behind a lane with
# their number.
MIN_DRAWN_SHARE = 0.005
NAME_LENGTH = 14  # Characters of a thread's name in a lane's label.
A, B = "A", "B"  # Prefixes of the lanes of two runs.


@dataclass(frozen=True)
class SecondRun:
    """Another run in the picture, its device, and the step at which both runs are aligned.

    ``step`` is the index (from 0) of a counted step. If it is None, the starts of the recordings are aligned. ``names`` are the
    distinct names of the page's run and of the other one.
    """

    result: RunResult
    rank: RankResult
    step: int | None
    names: tuple[str, str]


def device_track(result: RunResult, rank: RankResult | None, recording_id: str) -> dict[str, Any]:
    """Return the track of a device, or of a trace without GPU work."""
    return {
        "api": f"/api/v1/runs/{result.manifest.id}/timeline",
        "recording": recording_id,
        "device": rank.device if rank else 0,
        "label": (f"rank {rank.rank}" if rank.rank is not None else f"device {rank.device}") if rank else "",
        "offset": 0,
        "origin": views.extent(recording_id).start_ns,
        "lanes": _lanes(rank, recording_id),
    }


def all_ranks(result: RunResult, chosen: RankResult) -> list[dict[str, Any]]:
    """Return the tracks of all ranks on the clock of the chosen rank, whose track comes first.

    Each track has lost time, streams, and the folded operators of the main thread, so that ranks can be compared at a glance.
    The chosen rank's track also has the main thread's other lanes, folded.
    """
    clocks = {r.position: r.clock_offset_ns or 0 for r in result.communication.ranks} if result.communication else {}
    at = {id(r): views.extent(r.recording_id).start_ns - clocks.get(i, 0) for i, r in enumerate(result.ranks)}
    other_ranks = sorted(
        (rank for rank in result.ranks if rank is not chosen), key=lambda rank: -1 if rank.rank is None else rank.rank
    )
    ranks = [chosen, *other_ranks][:MAX_TRACKS]
    return [
        {**_brief(device_track(result, rank, rank.recording_id), rank is chosen), "offset": at[id(rank)] - at[id(chosen)]}
        for rank in ranks
    ]


def _brief(track: dict[str, Any], chosen: bool) -> dict[str, Any]:
    host = [lane for lane in track["lanes"] if lane["source"] in HOST_LANES]
    host = [
        {**lane, "folded": True}
        for lane in host
        if lane["lane"] == host[0]["lane"] and (chosen or lane["source"] == "operators")
    ]
    return {**track, "lanes": [lane for lane in track["lanes"] if lane["source"] in ("gaps", "gpu")] + host}


def pair(result: RunResult, rank: RankResult, second: SecondRun) -> list[dict[str, Any]]:
    """Return the track of a device, and below it the track of another run's device.

    Each track has lost time, streams and the main thread; the lanes name their run. ``offset`` shifts the other run's times so
    that the chosen step of both runs begins at the same place. ``ends`` is the shifted end of the other recording.
    """
    offset = shift_ns(rank, second)
    of_a, of_b = (
        device_track(result, rank, rank.recording_id),
        device_track(second.result, second.rank, second.rank.recording_id),
    )
    extent = views.extent(second.rank.recording_id)
    return [
        {**of_a, "mark": A, "label": f"{A}: {second.names[0]}", "lanes": _marked(A, of_a["lanes"])},
        {
            **of_b,
            "mark": B,
            "label": f"{B}: {second.names[1]}",
            "offset": offset,
            "lanes": _marked(B, of_b["lanes"]),
            "steps": steps(second.rank, extent),
            "ends": extent.ns + offset,
        },
    ]


def _marked(mark: str, lanes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the device's lanes and the main thread's folded lanes, so that two runs fit on the page."""
    leading = next((lane["lane"] for lane in lanes if lane["source"] in HOST_LANES), None)
    lanes_shown = [lane for lane in lanes if lane["source"] not in HOST_LANES or lane["lane"] == leading]
    return [
        {**lane, "label": f"{mark} · {HOST_LANES.get(lane['source'], lane['label'])}", "folded": lane["source"] in HOST_LANES}
        for lane in lanes_shown
    ]


def shift_ns(rank: RankResult, second: SecondRun) -> int:
    """Return the shift in ns that is added to the other recording's times, which count from its own start."""
    if second.step is None:
        return 0
    begins = (
        int(rank_result.counted["start_ns"].iloc[second.step]) - views.extent(rank_result.recording_id).start_ns
        for rank_result in (rank, second.rank)
    )
    own_begin, second_begin = begins
    return own_begin - second_begin


def _lanes(rank: RankResult | None, recording_id: str) -> list[dict[str, Any]]:
    """Return the lanes from top to bottom: lost time, streams, then threads.

    The main thread comes first, and threads of the backward pass come last. All threads except the main one are folded.
    """
    views.summed(recording_id)
    known, names, backward = views.lanes(recording_id, rank.device if rank else 0)
    shown: list[dict[str, Any]] = []
    if rank is not None and rank.ledger:  # A rank without a ledger has times that cannot be trusted.
        shown.append({"id": "gaps", "source": "gaps", "lane": 0, "label": "Lost time", "rows": 1})
    streams = sorted((lane for lane in known if lane.source == "gpu"), key=lambda lane: -lane.busy_ns)[:MAX_STREAMS]
    shown += [_lane(lane, f"GPU stream {lane.lane}") for lane in sorted(streams, key=lambda lane: lane.lane)]
    host = [lane for lane in known if lane.source in HOST_LANES]
    threads = _in_order(host, backward)
    for place, thread in enumerate(threads):
        of = {lane.source: lane for lane in host if lane.lane == thread}
        name = _name(thread, threads, names, backward)
        busy_ns = sum(lane.busy_ns for lane in of.values())
        quiet = place > 0 and thread not in backward and busy_ns < MIN_DRAWN_SHARE * views.extent(recording_id).ns
        shown += [
            {**_lane(of[source], f"{name} {what}", folded=place > 0), **({"quiet": True} if quiet else {})}
            for source, what in HOST_LANES.items()
            if source in of
        ]
    return shown


def _in_order(host: list[Lane], backward: set[int]) -> list[int]:
    """Return the threads to draw: the busiest first, but threads of the backward pass last."""
    busy = {thread: sum(lane.busy_ns for lane in host if lane.lane == thread) for thread in {lane.lane for lane in host}}
    return sorted(busy, key=lambda thread: (thread in backward, -busy[thread], thread))[:MAX_THREADS]


def _name(thread: int, threads: list[int], names: dict[int, str], backward: set[int]) -> str:
    """Return the label of a thread: "Main", "Backward" if only one thread is that, or the thread's name."""
    if thread in backward and len(backward) == 1:
        return "Backward"
    if backward and thread == threads[0]:
        return "Main"
    called = [thread_name(names.get(thread_id, f"thread {thread_id}")) for thread_id in threads]
    name = called[threads.index(thread)]
    # Two processes of one program have the same name.
    return name if called.count(name) == 1 else f"{name} ({threads.index(thread) + 1})"


def _lane(lane: Lane, label: str, *, folded: bool = False) -> dict[str, Any]:
    return {
        "id": f"{lane.source}-{lane.lane}",
        "source": lane.source,
        "lane": lane.lane,
        "label": label,
        "rows": lane.rows,
        **({"folded": True} if folded or lane.source == "python" else {}),
    }


def thread_name(label: str) -> str:
    """Return a thread's name without its process, such as "thread 936" or "thread …55872".

    A long number is shortened to its last digits, which distinguish threads.
    """
    name = label.split(" (", 1)[0]
    return fmt.clean(re.sub(r"\d{4,}(\d{5})$", r"…\1", name), NAME_LENGTH)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def steps(rank: RankResult, extent: TimelineSpan) -> dict[str, Any]:
    """Return the steps in the compact form that ``SentSteps`` in the component's steps.ts describes.

    Thousands of steps in full form would add half a megabyte to every run of the page.
    """
    start, end = (rank.steps[column].to_numpy(np.int64) - extent.start_ns for column in ("start_ns", "end_ns"))
    between = start - np.concatenate([[0], end[:-1]])[: len(start)]
    runs: list[list[Any]] = []
    for name, counted, why in rank.steps[["name", "counted", "excluded_because"]].itertuples(index=False):
        text, number = _parted(fmt.clean(str(name), 60))
        reason = None if counted else why if isinstance(why, str) else ""
        many, *before = runs[-1] if runs else (0,)
        if number is not None and before == [text, number - many, reason]:
            runs[-1][0] += 1
        else:
            runs.append([1, text, number, reason])
    return {"times": " ".join(map(str, np.column_stack([between, end - start]).ravel().tolist())), "names": runs}


def _parted(name: str) -> tuple[str, int | None]:
    """Split a name into its text and the number at its end.

    The number is None if the name does not end with a number, or if the number has leading zeros or too many digits.
    """
    match = re.fullmatch(r"(.*?)(0|[1-9]\d{0,14})", name, re.DOTALL)
    return (match[1], int(match[2])) if match else (name, None)
