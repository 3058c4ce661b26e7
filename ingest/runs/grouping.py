"""Group recordings into runs: ranks of one job, and telemetry with the trace nearest in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import duckdb
import msgspec

from sawtooth.ingest.database import first_row, read_rows
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest, RecordingRef
from sawtooth.ingest.runs.naming import RANK_IN_NAME
from sawtooth.ingest.schema import DataFolder

# Ranks start the same profiled step within seconds; two minutes allow for unsynchronized clocks.
MAX_START_DIFFERENCE_NS = 120 * 1_000_000_000
GROUPS = "SELECT concat(group_name, ' ', group_ranks), max(group_size) FROM collectives WHERE group_size > 1 AND group_ranks IS NOT NULL GROUP BY 1"


@dataclass(frozen=True)
class _RecordingFacts:
    """The facts about one recording that grouping needs.

    ``job`` is equal for all ranks of a job, and None for a trace without a rank. ``groups`` are the process groups of a trace
    without a rank, with their sizes.
    """

    ref: RecordingRef
    job: tuple[Any, ...] | None
    first_ns: int
    last_ns: int
    groups: Mapping[str, int] = field(default_factory=dict)


def group(folder: DataFolder, refs: list[RecordingRef], *, separate: bool = False) -> list[list[RecordingRef]]:
    """Return ``refs`` grouped into runs: ranks of one job, and telemetry with the nearest trace."""
    recordings = [_read_facts(folder, ref) for ref in {ref.id: ref for ref in refs}.values()]
    traces = [recording for recording in recordings if recording.ref.kind == "trace"]
    traces.sort(key=lambda trace: (trace.first_ns, trace.ref.id))
    groups = [[trace] for trace in traces]
    if not separate:
        groups = sorted(_jobs(traces), key=lambda members: min(trace.first_ns for trace in members))
    other_recordings = [recording for recording in recordings if recording.ref.kind != "trace"]
    if not groups:
        other_refs = [recording.ref for recording in other_recordings]
        if separate:
            return [[ref] for ref in other_refs]
        return [other_refs] if other_refs else []
    for recording in other_recordings:
        nearest = min(groups, key=lambda members: _distance(members, recording))
        nearest.append(recording)
    return [_with_ranks([recording.ref for recording in members]) for members in groups]


def _with_ranks(refs: list[RecordingRef]) -> list[RecordingRef]:
    """Return ``refs`` with the ranks from their file names, if no trace contains a rank.

    The ranks in the file names must all be different.
    """
    traces = [ref for ref in refs if ref.kind == "trace"]
    ranks = {ref.id: int(numbers[-1]) for ref in traces if (numbers := RANK_IN_NAME.findall(ref.source_name))}
    if len(traces) < 2 or any(ref.rank is not None for ref in traces) or len(set(ranks.values())) < len(traces):
        return refs
    return [msgspec.structs.replace(ref, rank=ranks[ref.id]) if ref.kind == "trace" else ref for ref in refs]


def _jobs(traces: list[_RecordingFacts]) -> list[list[_RecordingFacts]]:
    """Group ``traces``, which are sorted by their start, by job and profile."""
    ranked: dict[tuple[Any, ...], list[_RecordingFacts]] = {}
    unranked: list[list[_RecordingFacts]] = []
    for trace in traces:
        if trace.job is not None:
            ranked.setdefault(trace.job, []).append(trace)
            continue
        same_job = [members for members in unranked if _share_group(members, trace)]
        # Two ranks without a common process group may each share a process group with this trace.
        unranked = [members for members in unranked if members not in same_job] + [[*chain(*same_job), trace]]
    return [*unranked, *chain.from_iterable(map(_profiles, ranked.values()))]


def _profiles(traces: list[_RecordingFacts]) -> list[list[_RecordingFacts]]:
    """Group the traces of one job, which are sorted by their start, into profiles.

    Traces that started nearest to each other are joined first. A profile has each rank at most once.
    """
    profiles = {trace.ref.id: [trace] for trace in traces}
    for earlier, later in sorted(pairwise(traces), key=lambda pair: pair[1].first_ns - pair[0].first_ns):
        profile, later_profile = profiles[earlier.ref.id], profiles[later.ref.id]
        is_close = later_profile[-1].first_ns - profile[0].first_ns <= MAX_START_DIFFERENCE_NS
        if is_close and not {trace.ref.rank for trace in profile} & {trace.ref.rank for trace in later_profile}:
            profile.extend(later_profile)
            profiles.update((trace.ref.id, profile) for trace in later_profile)
    return list({id(profile): profile for profile in profiles.values()}.values())


def _share_group(members: list[_RecordingFacts], trace: _RecordingFacts) -> bool:
    """Return whether a trace without a rank belongs to the job of ``members``.

    The trace must share a process group with a member, each of its groups must have fewer members than its size, and the trace must overlap
    each member in time.
    """
    same_time = all(member.first_ns < trace.last_ns and trace.first_ns < member.last_ns for member in members)
    counts = {group: sum(group in member.groups for member in members) for group in trace.groups}
    return same_time and any(counts.values()) and all(count < trace.groups[group] for group, count in counts.items())


def _distance(members: list[_RecordingFacts], telemetry: _RecordingFacts) -> int:
    """Return the ns between telemetry and the nearest trace of ``members``; 0 if they overlap."""
    traces = [member for member in members if member.ref.kind == "trace"]
    return min(max(telemetry.first_ns - trace.last_ns, trace.first_ns - telemetry.last_ns, 0) for trace in traces)


def nearest_run(folder: DataFolder, runs: list[Manifest], ref: RecordingRef) -> Manifest:
    """Return the run with the trace nearest to the recording in time; all ``runs`` must have traces."""
    recording = _read_facts(folder, ref)
    return min(runs, key=lambda run: _distance([_read_facts(folder, trace) for trace in run.traces], recording))


def _read_facts(folder: DataFolder, ref: RecordingRef) -> _RecordingFacts:
    try:
        file = folder.recording_file(ref.id)
        row = first_row(file, "SELECT rank, world_size, backend, nccl_version, metadata, first_ns, last_ns FROM recording")
        unranked = row is not None and row[0] is None and ref.rank is None
        groups = dict(read_rows(file, GROUPS)) if unranked else {}
    except duckdb.Error:
        row = None
    if row is None:
        raise NotFoundError(f"Recording {ref.id} is missing or damaged. Ingest its file again.")
    rank, world, backend, nccl, metadata, first, last = row
    job = None
    if rank is not None and world is not None and world > 1:
        job = (world, backend, nccl, _default_group(metadata))
    return _RecordingFacts(ref, job, first or 0, last or 0, groups)


def _default_group(metadata: str | None) -> str:
    """Return the job's default process group as text, because subgroups may differ between ranks."""
    try:
        groups = msgspec.json.decode(metadata or "{}")["distributedInfo"]["pg_config"]
        return msgspec.json.encode(groups[0], order="sorted").decode()
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError):
        return ""


def overlapping_telemetry(folder: DataFolder, run: Manifest) -> list[Manifest]:
    """Return telemetry-only runs that were sampled less than SAME_TIME_NS from a trace of ``run``.

    Runs that share a recording with ``run`` are left out.
    """
    spans = [_span(folder, ref) for ref in run.traces]
    recordings = {ref.id for ref in run.recordings}
    return [
        other
        for other in folder.manifests()
        if not other.traces
        and not recordings & {ref.id for ref in other.recordings}
        and any(_are_close(_span(folder, ref), span) for ref in other.telemetry for span in spans)
    ]


def _are_close(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return span[0] < other[1] + SAME_TIME_NS and other[0] < span[1] + SAME_TIME_NS


def traced_during(folder: DataFolder, runs: list[Manifest], ref: RecordingRef) -> list[Manifest]:
    """Return the ``runs`` with a trace that overlaps the recording ``ref`` in time."""
    first, last = _span(folder, ref)
    overlapping = []
    for run in runs:
        spans = [_span(folder, trace) for trace in run.traces]
        if any(trace_first < last and first < trace_last for trace_first, trace_last in spans):
            overlapping.append(run)
    return overlapping


def _span(folder: DataFolder, ref: RecordingRef) -> tuple[int, int]:
    """Return first and last ns of a recording on its corrected clock; (0, 0) for an unreadable recording."""
    try:
        facts = _read_facts(folder, ref)
    except NotFoundError:
        return 0, 0
    shift = ref.offset_ns or 0
    return facts.first_ns + shift, facts.last_ns + shift
