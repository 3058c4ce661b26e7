"""Group recordings into runs: ranks of one job, and telemetry with the trace nearest in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import duckdb
import msgspec

from sawtooth.ingest.database import first_row, rows_of
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest, RecordingRef
from sawtooth.ingest.runs.naming import RANK_IN_NAME
from sawtooth.ingest.schema import DataFolder

CLOSE_NS = 120 * 1_000_000_000  # ranks start the same profiled step within seconds; two minutes allow for unsynchronized clocks
GROUPS = "SELECT concat(group_name, ' ', group_ranks), max(group_size) FROM collectives WHERE group_size > 1 AND group_ranks IS NOT NULL GROUP BY 1"


@dataclass(frozen=True)
class _About:
    """The facts of one recording that grouping needs."""

    ref: RecordingRef
    job: tuple[Any, ...] | None  # equal for ranks of one job; None for a trace that is not part of a job or does not name one
    first_ns: int
    last_ns: int
    # the process groups with their sizes, for a trace without a rank
    groups: Mapping[str, int] = field(default_factory=dict)


def group(folder: DataFolder, refs: list[RecordingRef], *, separate: bool = False) -> list[list[RecordingRef]]:
    """Return ``refs`` grouped into runs: ranks of one job, and telemetry with the nearest trace."""
    known = [_about(folder, ref) for ref in {ref.id: ref for ref in refs}.values()]
    traces = sorted((a for a in known if a.ref.kind == "trace"), key=lambda a: (a.first_ns, a.ref.id))
    groups = [[a] for a in traces] if separate else sorted(_jobs(traces), key=lambda g: min(a.first_ns for a in g))
    telemetry = [a for a in known if a.ref.kind != "trace"]
    if not groups:
        return [[a.ref] for a in telemetry] if separate else ([[a.ref for a in telemetry]] if telemetry else [])
    for extra in telemetry:
        min(groups, key=lambda g: _distance(g, extra)).append(extra)
    return [_ranked([a.ref for a in members]) for members in groups]


def _ranked(refs: list[RecordingRef]) -> list[RecordingRef]:
    """Return traces of one job without ranks with the ranks in their file names.

    Each trace must have a different one.
    """
    traces = [ref for ref in refs if ref.kind == "trace"]
    called = {ref.id: int(numbers[-1]) for ref in traces if (numbers := RANK_IN_NAME.findall(ref.source_name))}
    if len(traces) < 2 or any(ref.rank is not None for ref in traces) or len(set(called.values())) < len(traces):
        return refs
    return [msgspec.structs.replace(ref, rank=called[ref.id]) if ref.kind == "trace" else ref for ref in refs]


def _jobs(traces: list[_About]) -> list[list[_About]]:
    """Return traces, sorted by their start, grouped by job."""
    ranked: dict[tuple[Any, ...], list[_About]] = {}
    unranked: list[list[_About]] = []
    for trace in traces:
        if trace.job is not None:
            ranked.setdefault(trace.job, []).append(trace)
            continue
        mates = [members for members in unranked if _share_group(members, trace)]
        # ranks that share no group with each other may each share one with this trace
        unranked = [members for members in unranked if members not in mates] + [[*chain(*mates), trace]]
    return [*unranked, *chain.from_iterable(map(_profiles, ranked.values()))]


def _profiles(traces: list[_About]) -> list[list[_About]]:
    """Return the traces of one job, sorted by their start, as separate profiles.

    Traces that started nearest to each other are joined first. Each profile has a rank only once.
    """
    profile_of = {trace.ref.id: [trace] for trace in traces}
    for before, after in sorted(pairwise(traces), key=lambda pair: pair[1].first_ns - pair[0].first_ns):
        one, other = profile_of[before.ref.id], profile_of[after.ref.id]
        close = other[-1].first_ns - one[0].first_ns <= CLOSE_NS
        if close and not {m.ref.rank for m in one} & {m.ref.rank for m in other}:
            one.extend(other)
            profile_of.update((m.ref.id, one) for m in other)
    return list({id(profile): profile for profile in profile_of.values()}.values())


def _share_group(members: list[_About], trace: _About) -> bool:
    """Return whether a trace without a rank belongs to the job of ``members``.

    It must share a process group with one of them, the group must have room for it, and it must have run at the same time.
    """
    together = all(m.first_ns < trace.last_ns and trace.first_ns < m.last_ns for m in members)
    shared = {group: sum(group in m.groups for m in members) for group in trace.groups}
    return together and any(shared.values()) and all(taken < trace.groups[group] for group, taken in shared.items())


def _distance(members: list[_About], extra: _About) -> int:
    traces = [m for m in members if m.ref.kind == "trace"]
    return min(max(extra.first_ns - t.last_ns, t.first_ns - extra.last_ns, 0) for t in traces)


def nearest_run(folder: DataFolder, runs: list[Manifest], ref: RecordingRef) -> Manifest:
    """Return the one of ``runs``, all with traces, whose trace is nearest to the recording in time."""
    extra = _about(folder, ref)
    return min(runs, key=lambda run: _distance([_about(folder, trace) for trace in run.traces], extra))


def _about(folder: DataFolder, ref: RecordingRef) -> _About:
    try:
        file = folder.recording_file(ref.id)
        row = first_row(file, "SELECT rank, world_size, backend, nccl_version, metadata, first_ns, last_ns FROM recording")
        unranked = row is not None and row[0] is None and ref.rank is None
        groups = dict(rows_of(file, GROUPS)) if unranked else {}
    except duckdb.Error:
        row = None
    if row is None:
        raise NotFoundError(f"Recording {ref.id} is missing or damaged. Ingest its file again.")
    rank, world, backend, nccl, metadata, first, last = row
    job = None
    if rank is not None and world is not None and world > 1:
        job = (world, backend, nccl, _default_group(metadata))
    return _About(ref, job, first or 0, last or 0, groups)


def _default_group(metadata: str | None) -> str:
    """Return the job's default process group as text; subgroups may differ from rank to rank."""
    try:
        groups = msgspec.json.decode(metadata or "{}")["distributedInfo"]["pg_config"]
        return msgspec.json.encode(groups[0], order="sorted").decode()
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError):
        return ""


def overlapping_telemetry(folder: DataFolder, run: Manifest) -> list[Manifest]:
    """Return telemetry-only runs sampled less than SAME_TIME_NS from one of ``run``'s traces.

    Runs whose recordings it already has are left out.
    """
    spans = [_span(folder, ref) for ref in run.traces]
    own = {ref.id for ref in run.recordings}
    return [
        other
        for other in folder.manifests()
        if not other.traces
        and not own & {ref.id for ref in other.recordings}
        and any(
            a < last + SAME_TIME_NS and first < b + SAME_TIME_NS
            for ref in other.telemetry
            for a, b in [_span(folder, ref)]
            for first, last in spans
        )
    ]


def traced_during(folder: DataFolder, runs: list[Manifest], ref: RecordingRef) -> list[Manifest]:
    """Return the runs of ``runs`` with a trace from the time of a recording."""
    first, last = _span(folder, ref)
    return [run for run in runs if any(a < last and first < b for a, b in (_span(folder, trace) for trace in run.traces))]


def _span(folder: DataFolder, ref: RecordingRef) -> tuple[int, int]:
    """Return first and last ns of a recording on its corrected clock; an empty span if unreadable."""
    try:
        about = _about(folder, ref)
    except NotFoundError:
        return 0, 0
    shift = ref.offset_ns or 0
    return about.first_ns + shift, about.last_ns + shift
