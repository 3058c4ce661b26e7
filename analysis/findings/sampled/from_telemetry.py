"""Findings of samples, for runs without a profile and for what a profile cannot show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.run.model import Action, Finding, NotChecked, RankResult
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.telemetry.attribution import metadata_of
from sawtooth.analysis.telemetry.diagnosis.diagnose import SEVERITIES, diagnose_recording
from sawtooth.analysis.telemetry.diagnosis.not_observable import NotObservable
from sawtooth.analysis.telemetry.diagnosis.observation import Kind, Observation, gpus_in_words
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.ingest.manifest import Manifest

# The same fault has one slug, whether a profile or telemetry alone shows it.
SLUGS: dict[Kind, str] = {
    "thermal-throttling": "thermal-slowdown",
    "power-throttling": "power-cap",
    "memory-growth": "memory-creep",
}

# Observations that a profile of some steps on one GPU cannot show. Rules report the others, because a profile shows their cause.
BESIDE_PROFILE: frozenset[Kind] = frozenset(
    {"xid-error", "gpu-lost", "memory-errors", "thermal-throttling", "hardware-throttling", "low-clock", "gpu-unlike-peers", "utilization-trend",
     "host-memory", "narrow-pcie-link", "several-processes"}
)  # fmt: skip

_NUMBERED = re.compile(r"\bGPUs? ((?:\d+(?:, | and )?)+)")


class SampledHost(NamedTuple):
    """What the samples of one recording show and cannot show.

    ``name`` is None if the run has only one such recording. ``places`` has host and number of each GPU, if the recording covers
    several hosts.
    """

    recording_id: str
    observed: tuple[Observation, ...]
    unseen: tuple[NotObservable, ...]
    gpus: int
    name: str | None
    places: dict[str, str]

    def name_gpus(self, title: str) -> str:
        """Return a title with the host's name, and GPUs of several hosts by host and number."""
        return name_gpus(f"{self.name}: {title}" if self.name else title, self.places)


def check_telemetry(manifest: Manifest, library: Library, telemetry: RunTelemetry) -> tuple[list[Finding], list[NotChecked]]:
    """Return what the samples show, the most severe first, and what they cannot show."""
    findings: list[Finding] = []
    unseen: dict[str, str] = {}
    for host in hosts_of(manifest, library, telemetry):
        findings += [_finding(observation, host) for observation in host.observed]
        unseen |= {observed_slug(kind): because for kind, because in host.unseen}
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    slugs = {finding.rule for finding in findings}
    return findings, [NotChecked(slug, because) for slug, because in unseen.items() if slug not in slugs]


def not_in_profile(hosts: Sequence[SampledHost], lead: RankResult, known: Sequence[Finding]) -> list[Finding]:
    """Return the samples' warnings for a profiled run, without those that its findings already report."""
    lead_gpu = (lead.telemetry.recording_id, (lead.telemetry.device,)) if lead.telemetry is not None else None
    covered = {finding.rule for finding in known}
    findings = [
        _finding(observation, host)
        for host in hosts
        for observation in host.observed
        if observation.kind in BESIDE_PROFILE and observation.severity != "info"
        if observed_slug(observation.kind) not in covered or (host.recording_id, observation.devices) != lead_gpu
    ]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def hosts_of(manifest: Manifest, library: Library, telemetry: RunTelemetry) -> Iterator[SampledHost]:
    """Yield the diagnosis of each telemetry file.

    Samples that a profiler took itself do not count, because they only cover the profiled steps.
    """
    sampled = [ref for ref in manifest.telemetry if ref.kind == "telemetry"]
    for ref in sampled:
        with library.open(ref.id, derived=False) as recording:
            observed, lacking = diagnose_recording(recording, telemetry.clocks[ref.id])
            (gpus,) = recording.rows("SELECT count(DISTINCT device) FROM samples")[0]
            places = places_of(recording)
        name = ref.host or telemetry.origins[ref.id].host or ref.source_name
        yield SampledHost(ref.id, observed, lacking, int(gpus), name if len(sampled) > 1 else None, places)


def places_of(recording: Recording) -> dict[str, str]:
    """Return host and number of each GPU, such as "node-2 GPU 3", by its number in a recording."""
    places = metadata_of(recording).get("places")
    return {str(number): str(place) for number, place in places.items()} if isinstance(places, dict) else {}


def name_gpus(text: str, places: Mapping[str, str]) -> str:
    """Return the text with each GPU number replaced by its host and number in ``places``."""
    if not places:
        return text
    return _NUMBERED.sub(lambda gpus: re.sub(r"\d+", lambda gpu: places.get(gpu[0], f"GPU {gpu[0]}"), gpus[1]), text)


def observed_slug(kind: Kind) -> str:
    """Return the slug of findings of this kind."""
    return SLUGS.get(kind, kind)


def _finding(observation: Observation, host: SampledHost) -> Finding:
    verb, object_text, detail = observation.action
    return Finding(
        rule=observed_slug(observation.kind),
        severity=observation.severity,
        title=host.name_gpus(observation.title),
        action=Action(verb, name_gpus(object_text, host.places), name_gpus(detail, host.places)),
        confidence=observation.confidence,
        observed=name_gpus(f"{observation.evidence} {observation.sampling}", host.places),
        prediction_note=f"Telemetry alone predicts no gain. Record next: {observation.record_next}.",
        evidence=(_row(observation, host),),
    )


def _row(observation: Observation, host: SampledHost) -> Row:
    row: Row = {"host": host.name} if host.name else {}
    row |= {
        "gpus": name_gpus(gpus_in_words(observation.devices, host.gpus), host.places),
        "devices": list(observation.devices),
        "recording": host.recording_id,
        "start_ns": observation.start_ns,
        "end_ns": observation.end_ns,
        "share": observation.time_share,
    }
    return row | {key: value for key, value in observation.details.items() if value is not None and not isinstance(value, bool)}
