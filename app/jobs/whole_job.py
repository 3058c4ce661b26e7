"""Make one run from the summaries of a job's ranks, with recordings of a few representative ranks."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sawtooth.analysis.cluster.reduction import JobOverview, overview_of
from sawtooth.analysis.cluster.storage import SourceVersion, is_below, parent_of, storage_at
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.result_cache import remove_cached
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.manifest import Manifest, RecordingRef, run_id_of
from sawtooth.ingest.recording import clean_title, ingest_file
from sawtooth.ingest.runs.manifests import register_job
from sawtooth.ingest.schema import DataFolder

OUTSIDE = "{url} is outside the named locations, so it was not opened. If you trust the summaries, add --sources {place}"
MAX_SAMPLED = 16  # Telemetry files that are ingested, as many as there are representative ranks.


@dataclass(frozen=True)
class ReducedJob:
    """The run of a job, the overview of its ranks, and notices about sources that could not be opened."""

    manifest: Manifest
    overview: JobOverview
    notices: list[str]


def ingest_job(
    folder: DataFolder, summaries: str, name: str | None = None, opened: Sequence[int] = (), *, sources: Sequence[str] = ()
) -> ReducedJob:
    """Make a run from the summaries at ``summaries``, or update the existing run of this job.

    ``opened`` are ranks to ingest in addition to the representative ranks. Files are opened only below ``summaries`` or one of
    ``sources``, because summaries are not trusted. Raises UsageError if there are no summaries, or no summary of a rank in
    ``opened``.
    """
    summaries_id = gather(storage_at(summaries), folder)
    overview = overview_of(folder.summaries_file(summaries_id))
    ranks = overview.ranks
    earlier_run = _run_of(folder, set(ranks["id"]))
    selected = ranks[ranks["rank"].isin(list(opened))]
    if missing := set(opened) - set(selected["rank"]):
        raise UsageError(f"Rank {min(missing)} is not among the summaries. Run sawtooth map on its trace first.")
    chosen = ranks.loc[sorted({*overview.representatives, *selected.index})]
    places = [summaries, *sources]
    refs, notices = _open(folder, zip(chosen["source"], chosen["id"], strict=True), places)
    if not any(ref.kind == "trace" for ref in refs):
        raise SawtoothError(f"None of the {len(chosen)} traces to be opened can be read. {notices[0]}")
    hosts = [None if pd.isna(host) else str(host) for host in chosen["host"]]
    telemetry = JobTables(folder.summaries_file(summaries_id)).telemetry_sources(hosts)[:MAX_SAMPLED]
    telemetry_refs, telemetry_notices = _open(folder, telemetry, places)
    manifest = register_job(
        folder,
        refs + telemetry_refs,
        summaries_id,
        ranks["id"].tolist(),
        earlier_run.id if earlier_run is not None else None,
        name or (None if earlier_run is not None else _name_of(summaries)),
    )
    remove_cached(folder, manifest.id)  # A cached analysis may be from a time when the summaries were damaged.
    return ReducedJob(manifest, overview, notices + telemetry_notices)


def _run_of(folder: DataFolder, recordings: set[str]) -> Manifest | None:
    """Return the run with the most ranks in common with ``recordings``; None if no run has a common rank.

    A run whose summaries cannot be read counts only if its id is the id of a run of ``recordings``.
    """
    id_of_all = run_id_of([RecordingRef(trace_id, "trace", "") for trace_id in recordings])
    common_ranks: list[tuple[int, Manifest]] = []
    for manifest in folder.manifests():
        if manifest.summaries is not None:
            try:
                count = len(recordings & set(JobTables(folder.summaries_file(manifest.summaries)).ranks["id"]))
            except SawtoothError:
                count = int(manifest.id == id_of_all)
            common_ranks.append((count, manifest))
    count, run = max(common_ranks, key=lambda count_and_run: count_and_run[0], default=(0, None))
    return run if count else None


def _open(
    folder: DataFolder, sources: Iterable[tuple[str, str]], places: Sequence[str]
) -> tuple[list[RecordingRef], list[str]]:
    """Ingest the sources (address and id) below ``places``.

    Return the recordings, and notices on the other sources.
    """
    refs, notices = [], []
    with tempfile.TemporaryDirectory(prefix="sawtooth-rank-") as temporary:
        for url, recording_id in dict.fromkeys(sources):
            if not any(is_below(url, allowed) for allowed in places):
                notices.append(OUTSIDE.format(url=clean_title(url), place=shlex.quote(clean_title(url.rpartition("/")[0]))))
                continue
            place, name = parent_of(SourceVersion(url, "", 0))
            try:
                path = place.fetch(name, Path(temporary) / name)
                ref = ingest_file(path, folder, source_name=name, expected_id=recording_id)
                if ref.kind == "trace":
                    ensure_derived(folder, ref.id)
            except SawtoothError as error:
                notices.append(str(error))
            else:
                refs.append(ref)
    return refs, notices


def _name_of(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2] or "job"
