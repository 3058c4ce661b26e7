"""Findings of a run that has telemetry and no profile: what its samples show, in the form that every screen reads."""

from __future__ import annotations

from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.run.model import Action, Finding, NotChecked
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.diagnosis.diagnose import SEVERITIES, of_recording
from sawtooth.analysis.telemetry.diagnosis.observation import Kind, Observation, named
from sawtooth.analysis.telemetry.of_run import RunTelemetry
from sawtooth.ingest.manifest import Manifest

# The same fault has one slug, whether a profile or telemetry alone shows it.
SLUGS: dict[Kind, str] = {"thermal-throttling": "thermal-slowdown", "power-throttling": "power-cap"}


def check_telemetry(manifest: Manifest, library: Library, telemetry: RunTelemetry) -> tuple[list[Finding], list[NotChecked]]:
    """Return what the samples show, the most severe first, and what they cannot show."""
    found: list[Finding] = []
    unseen: dict[str, str] = {}
    several = len(manifest.telemetry) > 1
    for ref in manifest.telemetry:
        origin = telemetry.origins[ref.id]
        with library.open(ref.id, derived=False) as recording:
            observed, lacking = of_recording(recording, telemetry.clocks[ref.id])
            (gpus,) = recording.rows("SELECT count(DISTINCT device) FROM samples")[0]
        where = (ref.host or origin.host or ref.source_name) if several else None
        found += [_finding(one, int(gpus), where) for one in observed]
        unseen |= {_slug(kind): because for kind, because in lacking}
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    slugs = {finding.rule for finding in found}
    return found, [NotChecked(slug, because) for slug, because in unseen.items() if slug not in slugs]


def _slug(kind: Kind) -> str:
    return SLUGS.get(kind, kind)


def _finding(one: Observation, gpus: int, host: str | None) -> Finding:
    return Finding(
        rule=_slug(one.kind),
        severity=one.severity,
        title=f"{host}: {one.title}" if host else one.title,
        action=Action(*one.action),
        confidence=one.confidence,
        observed=f"{one.seen} {one.basis}",
        prediction_note=f"Telemetry alone predicts no gain. Record next: {one.record_next}.",
        evidence=(_row(one, gpus, host),),
    )


def _row(one: Observation, gpus: int, host: str | None) -> Row:
    row: Row = {"host": host} if host else {}
    row |= {"gpus": named(one.devices, gpus), "start_ns": one.start_ns, "end_ns": one.end_ns, "share": one.share}
    return row | {key: value for key, value in one.details.items() if value is not None and not isinstance(value, bool)}
