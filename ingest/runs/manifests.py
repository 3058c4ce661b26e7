"""Group recordings into runs and keep their manifests: register, attach, delete."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import duckdb
import msgspec

from sawtooth.ingest.database import first_row, rows_of
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.runs.proposals import forget, needed, remove_unused
from sawtooth.ingest.runs.recordings import changing, joined, still_here
from sawtooth.ingest.schema import BatchTrial, DataFolder, Manifest, RecordingRef, UserFacts, new_manifest, run_id_of

CLOSE_NS = 120 * 1_000_000_000  # ranks start the same profiled step within seconds; two minutes forgive unsynchronised clocks
RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)", re.I)
GROUPS = "SELECT concat(group_name, ' ', group_ranks), max(group_size) FROM collectives WHERE group_size > 1 AND group_ranks IS NOT NULL GROUP BY 1"
HOME = re.compile(r"(?:^|/)(?:(?:home|Users)/[^/]+|root)$")
SUFFIXES = re.compile(r"(?:\.(?:pt|trace|json|jsonl|gz|csv|txt))+$", re.I)
SAYS_NOTHING = re.compile(  # what scripts and tutorials call every trace and the folder it lies in
    r"(?:(?:chrome|torch|pytorch|kineto|gpu|my)[_-]?)?(?:trace|traces|profile|profiler|profiling|prof|nvml|telemetry|output|out|log|logs|tmp|data|results)"
    r"(?:[_-]?\d*)|(?:rank|worker|gpu|node)?[_-]?\d+|tmp\w{8}|\.*",
    re.I,
)


@dataclass(frozen=True)
class _About:
    """What grouping needs to know of one recording."""

    ref: RecordingRef
    job: tuple[Any, ...] | None  # equal for ranks of one job; None for a trace that is no part of one, or does not tell
    first_ns: int
    last_ns: int
    groups: Mapping[str, int] = field(
        default_factory=dict
    )  # of a trace that tells no rank: its process groups with their sizes


def register_run(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    settings: dict[str, str] | None = None,
    *,
    notes: str = "",
    tags: list[str] | None = None,
    facts: UserFacts | None = None,
    batches: list[BatchTrial] | None = None,
    command: list[str] | None = None,
    bundled: bool = False,
) -> Manifest:
    """Make one run of ``refs`` and return its manifest.

    A run that exists already keeps its name, notes and facts unless new ones are given, and gains the telemetry and the settings.
    """
    if not refs:
        raise UsageError("A run needs at least one recording.")
    refs = list({ref.id: ref for ref in refs}.values())
    with changing(folder):
        still_here(folder, refs)
        try:
            old = folder.read_manifest(run_id_of(refs))
        except NotFoundError:
            manifest = new_manifest(refs, name or _name_of(folder, refs))
        else:
            manifest = msgspec.structs.replace(old, name=name or old.name, recordings=joined(old.recordings, refs))
        manifest = msgspec.structs.replace(
            manifest,
            notes=notes or manifest.notes,
            tags=list(dict.fromkeys([*manifest.tags, *(tags or [])])),
            settings={**manifest.settings, **(settings or {})},
            facts=manifest.facts if facts is None else facts,  # a Struct is true even where it holds nothing
            batches=batches or manifest.batches,
            command=command or manifest.command,
            bundled=bundled and manifest.bundled,
        )
        folder.write_manifest(manifest)
    return manifest


def register_runs(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    settings: dict[str, str] | None = None,
    *,
    separate: bool = False,
    attach_to: str | None = None,
) -> list[Manifest]:
    """Group recordings that came together into runs, register them, and return the manifests.

    Ranks of one job become one run, telemetry joins the run that is nearest in time; ``separate`` makes a run of every
    trace; ``attach_to`` (a run id) adds everything to that run. Raises NotFoundError for an unknown run.
    """
    if attach_to is not None:
        return [attach(folder, attach_to, refs)]
    groups = group(folder, refs, separate=separate)
    return [register_run(folder, members, name if len(groups) == 1 else None, settings) for members in groups]


def attach(folder: DataFolder, run_id: str, refs: list[RecordingRef]) -> Manifest:
    """Add recordings to a run and return its manifest.

    Telemetry leaves the id as it is. A further rank makes another run id; the old manifest stays, so that links to it keep their meaning.
    """
    with changing(folder):
        still_here(folder, refs)
        old = folder.read_manifest(run_id)
        recordings = joined(old.recordings, refs)
        # a job of many ranks is the same job whichever of them have files of their own
        new_id = run_id_of(recordings) if old.summaries is None else old.id
        manifest = msgspec.structs.replace(old, id=new_id, recordings=recordings)
        folder.write_manifest(manifest)
    return manifest


def edit_run(folder: DataFolder, run_id: str, edit: Callable[[Manifest], Manifest]) -> Manifest:
    """Write what ``edit`` makes of a run as it is now, so that nobody's words are lost and no deleted run comes back. Raises NotFoundError."""
    with changing(folder):
        manifest = edit(folder.read_manifest(run_id))
        folder.write_manifest(manifest)
    return manifest


def register_job(
    folder: DataFolder, refs: list[RecordingRef], summaries_id: str, trace_ids: list[str], known: str | None, name: str | None
) -> Manifest:
    """Make or renew the run of a job of many ranks, of which ``refs`` have recordings, and return its manifest.

    ``summaries_id`` names the file of all ranks' summaries, ``trace_ids`` their traces. The run that the job has already, ``known``, keeps its
    id, and its name where ``name`` is None. Raises NotFoundError where somebody deleted it meanwhile.
    """
    run_id = known or run_id_of([RecordingRef(trace_id, "trace", "") for trace_id in trace_ids])
    with changing(folder):
        still_here(folder, refs)
        try:
            old = folder.read_manifest(run_id)
        except NotFoundError:
            if known is not None:
                raise NotFoundError("This job's run was deleted while its traces were read in. Read it in again.") from None
            old = msgspec.structs.replace(new_manifest(refs, name or _name_of(folder, refs)), id=run_id)
        manifest = msgspec.structs.replace(
            old, name=name or old.name, recordings=joined(old.recordings, refs), summaries=summaries_id
        )
        folder.write_manifest(manifest)
        if old.summaries is not None:
            remove_unused(folder, {old.summaries})
    return manifest


def overlapping_telemetry(folder: DataFolder, run: Manifest) -> list[Manifest]:
    """Return the runs of telemetry alone whose samples cover some of ``run``'s traces in time, and that it does not hold already."""
    spans = [_span(folder, ref) for ref in run.traces]
    own = {ref.id for ref in run.recordings}
    return [
        other
        for other in folder.manifests()
        if not other.traces
        and not own & {ref.id for ref in other.recordings}
        and any(a < last and first < b for ref in other.telemetry for a, b in [_span(folder, ref)] for first, last in spans)
    ]


def _span(folder: DataFolder, ref: RecordingRef) -> tuple[int, int]:
    """Return first and last ns of a recording, on the clock that its correction puts it; an empty span where it cannot be read."""
    try:
        about = _about(folder, ref)
    except NotFoundError:
        return 0, 0
    shift = ref.offset_ns or 0
    return about.first_ns + shift, about.last_ns + shift


def delete_run(folder: DataFolder, run_id: str) -> None:
    """Remove a run, and its recordings, derived files and sources where no other run uses them. Raises NotFoundError."""
    with changing(folder):
        path = folder.manifest_file(run_id)
        if not path.exists():
            folder.read_manifest(run_id)
        recordings: set[str] = set()
        with contextlib.suppress(NotFoundError):  # a damaged manifest can be deleted too
            recordings = needed(folder, folder.read_manifest(run_id))
        path.unlink(missing_ok=True)
        forget(folder, run_id)
        remove_unused(folder, recordings)


def group(folder: DataFolder, refs: list[RecordingRef], *, separate: bool = False) -> list[list[RecordingRef]]:
    """Return ``refs`` as the runs they make: ranks of one job together, telemetry with the nearest trace."""
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
    """Return traces of one job that tell no ranks with those that their files are called by, where each has one of its own."""
    traces = [ref for ref in refs if ref.kind == "trace"]
    called = {ref.id: int(numbers[-1]) for ref in traces if (numbers := RANK_IN_NAME.findall(ref.source_name))}
    if len(traces) < 2 or any(ref.rank is not None for ref in traces) or len(set(called.values())) < len(traces):
        return refs
    return [msgspec.structs.replace(ref, rank=called[ref.id]) if ref.kind == "trace" else ref for ref in refs]


def _jobs(traces: list[_About]) -> list[list[_About]]:
    """Return traces, sorted by their start, as the jobs that they are of."""
    ranked: dict[tuple[Any, ...], list[_About]] = {}
    unranked: list[list[_About]] = []
    for trace in traces:
        if trace.job is not None:
            ranked.setdefault(trace.job, []).append(trace)
            continue
        mates = [members for members in unranked if _share_group(members, trace)]
        # ranks that share no group themselves may each share one with this trace
        unranked = [members for members in unranked if members not in mates] + [[*chain(*mates), trace]]
    return [*unranked, *chain.from_iterable(map(_profiles, ranked.values()))]


def _profiles(traces: list[_About]) -> list[list[_About]]:
    """Return the traces of one job, sorted by their start, as its profiles: what started nearest together first, and each rank once."""
    profile_of = {trace.ref.id: [trace] for trace in traces}
    for before, after in sorted(pairwise(traces), key=lambda pair: pair[1].first_ns - pair[0].first_ns):
        one, other = profile_of[before.ref.id], profile_of[after.ref.id]
        close = other[-1].first_ns - one[0].first_ns <= CLOSE_NS
        if close and not {m.ref.rank for m in one} & {m.ref.rank for m in other}:
            one.extend(other)
            profile_of.update((m.ref.id, one) for m in other)
    return list({id(profile): profile for profile in profile_of.values()}.values())


def _share_group(members: list[_About], trace: _About) -> bool:
    """Tell whether a trace without a rank is of the same job: it has a process group with one of ``members``, which has room for it, at the same time."""
    together = all(m.first_ns < trace.last_ns and trace.first_ns < m.last_ns for m in members)
    shared = {group: sum(group in m.groups for m in members) for group in trace.groups}
    return together and any(shared.values()) and all(taken < trace.groups[group] for group, taken in shared.items())


def _distance(members: list[_About], extra: _About) -> int:
    traces = [m for m in members if m.ref.kind == "trace"]
    return min(max(extra.first_ns - t.last_ns, t.first_ns - extra.last_ns, 0) for t in traces)


def nearest_run(folder: DataFolder, runs: list[Manifest], ref: RecordingRef) -> Manifest:
    """Return the one of ``runs``, all with traces, of which a trace is nearest to the recording in time."""
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


def telling_name(path: str) -> str | None:
    """Return what tells a recording from others: its file's name without suffixes, or its folder's where the file is called ``trace`` or so.

    None where neither says anything; a home folder's name is its user's and says nothing of a recording.
    """
    folder, _, file = path.replace("\\", "/").rpartition("/")
    names = (SUFFIXES.sub("", file), HOME.sub("/", folder).rpartition("/")[2])
    return next((name for name in names if name and not SAYS_NOTHING.fullmatch(name)), None)


def _name_of(folder: DataFolder, refs: list[RecordingRef]) -> str:
    main = next((ref for ref in refs if ref.kind == "trace"), refs[0])
    stem = SUFFIXES.sub("", main.source_name) or main.source_name
    return telling_name(main.source_name) or telling_name(_trace_name(folder, main)) or stem


def _trace_name(folder: DataFolder, ref: RecordingRef) -> str:
    """Return the path that the profiler wrote the trace to, "" where it is not known."""
    try:
        row = first_row(folder.recording_file(ref.id), "SELECT metadata ->> 'traceName' FROM recording")
    except duckdb.Error:
        row = None
    return str(row[0]) if row and row[0] else ""
