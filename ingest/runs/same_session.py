"""Attach telemetry to a profile of the same host and time, whichever of the two was ingested first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.runs.manifests import attach
from sawtooth.ingest.runs.telemetry_match import sampled_during
from sawtooth.ingest.schema import DataFolder


def joined_later(folder: DataFolder, runs: Sequence[Manifest]) -> Iterator[tuple[Manifest, str]]:
    """Attach telemetry to profiles of the same session; yield each changed run with a sentence about it.

    The profile or the telemetry must be one of the new ``runs``. Telemetry is attached if it was sampled on the trace's host during the trace.
    If a host has several such recordings, none is attached, and the page asks the user which one to use.
    """
    stored = [run for run in folder.manifests() if not run.bundled]
    new_ids = {run.id for run in runs}
    for run in stored:
        if not run.traces or run.telemetry:
            continue
        telemetry_runs = [other for other in stored if not other.traces and other.telemetry]
        candidates = [other for other in telemetry_runs if run.id in new_ids or other.id in new_ids]
        refs = _one_per_host(folder, run, [ref for other in candidates for ref in other.telemetry])
        if refs:
            names = ", ".join(ref.source_name for ref in refs)
            sentence = f"{names}: it was sampled on the host of {run.name} at the same time, so it was attached to this run."
            yield attach(folder, run.id, refs), sentence


def _one_per_host(folder: DataFolder, run: Manifest, refs: Sequence[RecordingRef]) -> list[RecordingRef]:
    """Return the ``refs`` that were sampled during ``run``, without hosts with several recordings."""
    by_host: dict[str, dict[str, RecordingRef]] = defaultdict(dict)
    for ref in refs:
        if (host := sampled_during(folder, run, ref)) is not None:
            by_host[host][ref.id] = ref
    return [ref for recordings in by_host.values() if len(recordings) == 1 for ref in recordings.values()]
