"""Ingest a recorded run into the data folder, and read its step time as a comparison does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sawtooth.analysis.combined_changes import combined_prediction
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.attribution import has_marked_gpus
from sawtooth.analysis.telemetry.step_marks import step_mark_evidence
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.trials.choosing import Candidate
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder


def measured_run(bundle: Path, data: DataFolder) -> tuple[RunResult, MeasuredSteps, str]:
    """Return the analysis of a recorded run, its measurements, and its id."""
    run = ingest_into_runs(data, [(bundle, bundle.name)]).runs[0]
    with Library(data) as library:
        result = result_of(run, library)
        return result, _of_all_ranks(side_of([result], library).measured[0], run, library), run.id


def predicted_together(
    result: RunResult, data: DataFolder, candidates: Sequence[Candidate]
) -> tuple[float | None, float | None, float | None]:
    """Return the step time (ms) predicted for all ``candidates`` together, and the ends of its interval.

    All three are None if a candidate has no prediction, or if the replay cannot predict the changes together.
    """
    rules = {candidate.rule for candidate in candidates if candidate.predicted_ms is not None}
    findings = [finding for finding in result.findings if finding.rule in rules]
    if (
        result.lead is None
        or any(candidate.predicted_ms is None for candidate in candidates)
        or not all(f.edits for f in findings)
    ):
        return None, None, None
    with Library(data) as library:
        together = combined_prediction(library, result.lead, result.gpus, findings)
    return (together.after_ms, together.low_ms, together.high_ms) if together is not None else (None, None, None)


def _of_all_ranks(measured: MeasuredSteps, manifest: Manifest, library: Library) -> MeasuredSteps:
    """Return ``measured`` with the slowest rank's step time, if several ranks marked their steps.

    The analysis needs a trace for the step time of several ranks. A trial records none.
    """
    ranks = [ref.rank for ref in manifest.recordings if ref.kind == "marks"]
    if len(ranks) < 2:
        return measured
    cpu_only = not has_marked_gpus(manifest, library)
    marked = [step_mark_evidence(manifest, library, rank, cpu_only=cpu_only) for rank in ranks]
    slowest = max(
        (evidence for evidence in marked if evidence is not None and evidence.ms),
        key=lambda evidence: evidence.ms or 0.0,
        default=None,
    )
    if slowest is None:
        return measured
    return replace(measured, steps_ms=(), best_ms=slowest.ms, low_ms=slowest.low_ms, high_ms=slowest.high_ms, source="marks")
