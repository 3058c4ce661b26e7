"""Analysis of a run: the ``RunResult`` that every screen, the report and the comparison use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis import doubts
from sawtooth.analysis.cluster.overview import of_whole_job
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.checking import check, check_host
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.sampled.from_telemetry import check_telemetry, hosts_of, not_in_profile
from sawtooth.analysis.findings.sampled.joined import statements
from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.knowledge.owners import KERNEL_OWNERS
from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import readings_without_trace
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.ranks.groups import with_parallelism
from sawtooth.analysis.ranks.job import replay_job
from sawtooth.analysis.ranks.job_step import at_job_step, leading_rank, measured_step_ms
from sawtooth.analysis.ranks.stragglers.sentences import straggler_name
from sawtooth.analysis.reading_order import in_reading_order
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run import compile_log
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.rank import RankTrace
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_without_gpu import of_the_host, why_no_gpu_work, without_records
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.recording_row import RecordingRow, row_of
from sawtooth.analysis.telemetry import run_telemetry as run_telemetry
from sawtooth.analysis.telemetry import step_marks
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.troughs import link
from sawtooth.analysis.units import in_words
from sawtooth.ingest.manifest import Manifest

NO_GPU = "no_gpu"  # Ingest reports a trace without GPU operations under this key.


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run's analysis.

    ``rows`` are the run's recordings, ``noted`` the diagnostics of their ingest. ``marks`` has the step time from the loop's own
    marks for each trace, by recording id.
    """

    manifest: Manifest
    library: Library
    rows: list[RecordingRow]
    noted: list[Diagnostic]
    telemetry: RunTelemetry
    marks: Mapping[str, StepTimeEvidence | None]


@dataclass(frozen=True)
class AnalysedJob:
    """The ranks of a run with their job's step time, and their communication.

    ``lead`` is the rank that determines the job's step; None without GPU work. ``lost`` is why the summaries of the job's ranks
    could not be read, None if they were read or not needed.
    """

    ranks: list[RankResult]
    communication: Communication | None
    lead: RankResult | None
    lost: str | None


def analyse(manifest: Manifest, library: Library) -> RunResult:
    """Analyse the run of ``manifest``; missing derived files are made.

    Raises SawtoothError if a recording is missing or damaged.
    """
    inputs = _read(manifest, library)
    job = _job(inputs, _measured_ranks(inputs))
    if job.lead is None:
        result = of_the_host(_result(inputs, job, without_records(manifest, library, inputs.noted)), library, inputs.marks)
        of_host, of_samples = check_host(result), check_telemetry(manifest, library, inputs.telemetry)
        result = replace(result, findings=[*of_host[0], *of_samples[0]], not_checked=[*of_host[1], *of_samples[1]])
        return in_reading_order(result, None)
    result = _result(inputs, job, doubts.failed_of(job.ranks, job.lead))
    return _with_findings(_with_troughs(result, library, job.lead), library, job.lead)


def _read(manifest: Manifest, library: Library) -> RunInputs:
    rows, noted = _recordings(manifest, library)
    traces = [(ref, row) for ref, row in zip(manifest.recordings, rows, strict=True) if ref.kind == "trace"]
    telemetry = run_telemetry.load(manifest, library, [row for _, row in traces])
    marks = {ref.id: step_marks.step_mark_evidence(manifest, library, ref.rank) for ref, _ in traces}
    return RunInputs(manifest, library, rows, noted, telemetry, marks)


def _measured_ranks(inputs: RunInputs) -> list[tuple[RankResult, DeviceMeasurements]]:
    """Return each device of each trace, analysed without the other ranks, with the inputs of its metrics."""
    library, ranks = inputs.library, []
    for ref, row in zip(inputs.manifest.recordings, inputs.rows, strict=True):
        if ref.kind == "trace":
            with library.open(row.id) as recording:
                trace = RankTrace(recording, row, inputs.manifest.facts, inputs.telemetry, inputs.marks[row.id], library.folder)
                ranks += trace.ranks()
    return ranks


def _job(inputs: RunInputs, measured: list[tuple[RankResult, DeviceMeasurements]]) -> AnalysedJob:
    """Return the ranks analysed together as one job."""
    library, telemetry, summaries = inputs.library, inputs.telemetry, inputs.manifest.summaries
    ranks, communication = split_communication(library, [rank for rank, _ in measured])
    if communication is not None:
        communication = _as_one_job(library, ranks, communication, telemetry)
    lost = None
    if summaries is not None:
        ranks, communication, lost = of_whole_job(library.folder, summaries, ranks, communication)
    at_step = at_job_step(library, ranks, [of_rank for _, of_rank in measured], communication, telemetry)
    ranks = [doubts.without_invalid_numbers(rank) for rank in at_step]
    lead = leading_rank(ranks, communication)
    if communication is not None:
        communication = with_parallelism(ranks, communication)
        if (pipeline := communication.schedule) is not None:
            ranks = [replace(rank, best=replace(rank.best, pipeline_ms=pipeline.least_ms)) for rank in ranks]
            lead = leading_rank(ranks, communication)
    return AnalysedJob(ranks, communication, lead, lost)


def _as_one_job(
    library: Library, ranks: list[RankResult], communication: Communication, telemetry: RunTelemetry
) -> Communication:
    """Return the communication with the job's step and stragglers, if the ranks can be connected."""
    replayed = replay_job(library, ranks, communication, sampled=bool(telemetry.devices))
    if replayed is None:
        return communication
    is_replayed = replayed.communication.step_ms is not None
    return replayed.with_stragglers(
        measured_step_ms(library, ranks, replayed.communication, telemetry) if is_replayed else None
    )


def _result(inputs: RunInputs, job: AnalysedJob, failed: tuple[FailedCheck, ...]) -> RunResult:
    manifest, telemetry = inputs.manifest, inputs.telemetry
    no_gpu_work = why_no_gpu_work(manifest, inputs.library, telemetry, failed)
    return RunResult(
        manifest=manifest,
        ranks=job.ranks,
        lead=job.lead,
        recordings=inputs.rows,
        diagnostics=_diagnostics(inputs, job, failed),
        metrics=_run_metrics(job.lead, job.ranks, telemetry, job.communication, no_gpu_work),
        telemetry=telemetry,
        communication=job.communication,
        compile_log=compile_log.load(manifest, inputs.library, job.lead.rank if job.lead else None),
        failed=failed,
    )


def _diagnostics(inputs: RunInputs, job: AnalysedJob, failed: tuple[FailedCheck, ...]) -> list[Diagnostic]:
    """Return the diagnostics of ingest, of the ranks, of failed checks and of telemetry, in this order."""
    summaries = [Diagnostic("summaries_lost", "error", job.lost, 1)] if job.lost else []
    repeated = {check.key for check in failed}
    if failed and job.lead is None:  # The GPU worked, although its records are missing.
        repeated.add(NO_GPU)
    of_ranks = trust.diagnostics_of(job.ranks)
    noted = [diagnostic for diagnostic in (*inputs.noted, *summaries, *of_ranks) if diagnostic.key not in repeated]
    elsewhere = [
        Diagnostic("telemetry_elsewhere", "error", sentence, 1) for sentence in _other_time_notes(job.ranks, inputs.telemetry)
    ]
    unknown = inputs.telemetry.unknown
    unattributed = [Diagnostic("telemetry_not_attributed", "info", unknown, 1)] if unknown is not None else []
    return [*noted, *doubts.diagnostics_of(failed), *elsewhere, *unattributed]


def _with_findings(result: RunResult, library: Library, lead: RankResult) -> RunResult:
    with open_rank(library, lead) as view:
        whatif = whatif_of(view.recording, lead)
        checked = check(RuleContext(result, lead, view.recording, lead.telemetry, whatif))
    hosts = list(hosts_of(result.manifest, library, result.telemetry))
    findings = [*checked.findings, *not_in_profile(hosts, lead, checked.findings)]
    result = replace(
        result,
        findings=findings,
        not_checked=checked.not_checked,
        statements=statements(result, lead, hosts, checked.findings),
        below_threshold=checked.below_threshold,
    )
    return in_reading_order(result, whatif)


def _recordings(manifest: Manifest, library: Library) -> tuple[list[RecordingRow], list[Diagnostic]]:
    """Return the rows of the run's recordings, with the manifest's ranks, and ingest's diagnostics."""
    rows: list[RecordingRow] = []
    diagnostics: list[Diagnostic] = []
    for ref in manifest.recordings:
        ensure_derived(library.folder, ref.id)
        with library.open(ref.id, derived=False) as recording:
            row = row_of(recording)
            noted = recording.rows("SELECT key, severity, sentence, count FROM diagnostics ORDER BY key")
        rows.append(row if ref.rank is None else replace(row, rank=ref.rank))
        diagnostics += [Diagnostic(*diagnostic) for diagnostic in noted]
    return rows, diagnostics


def _other_time_notes(ranks: list[RankResult], telemetry: RunTelemetry) -> list[str]:
    """Return the sentences about telemetry from another time than the traces, each once."""
    sentences = (run_telemetry.other_time_note(r.telemetry, telemetry.profile_ns(r.telemetry, r.trace)) for r in ranks)
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def _with_troughs(result: RunResult, library: Library, lead: RankResult) -> RunResult:
    """Return the result with the lead's sawtooth troughs linked to its trace; unchanged without troughs."""
    telemetry = lead.telemetry
    if telemetry is None:
        return result
    counted = len(lead.counted)
    kernel_ms = sum(row.ns for row in lead.ledger if row.owner in KERNEL_OWNERS) / counted / 1e6 if counted else None
    step_ms = lead.best.ms if counted and lead.best.represented else None
    clock = result.telemetry.clocks[telemetry.recording_id]
    trace = (lead.recording_id, lead.device) if clock.shares(lead.trace.clock) else None
    troughs = link(library, telemetry, clock, trace, step_ms, kernel_ms)
    if troughs is None:
        return result
    period = result.metrics["sawtooth_period_s"]
    noted = replace(period, notes=(*period.notes, *troughs.notes()))
    return replace(result, troughs=troughs, metrics={**result.metrics, "sawtooth_period_s": noted})


def whatif_of(recording: Recording, rank: RankResult) -> WhatIf | None:
    """Return the replay of a rank, to apply changes; None if no replay reproduces its trace."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    if not rows or rank.best.estimate.value is None:
        return None
    counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
    return WhatIf(replay_store.load(rows[0][0]), rank.device, counted, bool(recording.named(LOADS_IN_WORKERS)))


def _run_metrics(
    lead: RankResult | None,
    ranks: list[RankResult],
    telemetry: RunTelemetry,
    communication: Communication | None,
    no_gpu_work: str,
) -> dict[str, Reading]:
    if lead is None:
        return readings_without_trace(telemetry.busiest, no_gpu_work)
    if len(ranks) == 1:
        return lead.metrics
    which = f"rank {lead.rank}, device {lead.device}" if lead.rank is not None else f"device {lead.device}"
    rank_in_words = f"This is the value of {which}, the slowest of {len(ranks)} ranks."
    if communication is not None and communication.stragglers:
        straggler = communication.stragglers[0]
        name = straggler_name(straggler, ranks)
        takes = "take" if straggler.kind == "set" else "takes"
        rank_in_words += f" {name[0].upper()}{name[1:]} {takes} {in_words(straggler.own_ms)} of a step longer than the others."
    return {k: replace(r, notes=(*r.notes, rank_in_words)) for k, r in lead.metrics.items()}
