"""Analysis of a run: one ``RunResult``, which every screen, the report and the comparison read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sawtooth.analysis import doubts
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.derive.steps.lost_launches import lost_launches
from sawtooth.analysis.findings.checking import check, check_host
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.sampled.from_telemetry import beside_profile, check_telemetry, hosts_of
from sawtooth.analysis.findings.sampled.joined import statements
from sawtooth.analysis.integrity import lost_records
from sawtooth.analysis.integrity.failed_check import FailedCheck, deciding
from sawtooth.analysis.knowledge.owners import KERNEL_OWNERS
from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.registry import readings_without_trace
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.ranks.groups import with_parallelism
from sawtooth.analysis.ranks.job import as_one_job
from sawtooth.analysis.ranks.job_step import at_job_step, leading, measured_ms
from sawtooth.analysis.ranks.stragglers.sentences import who
from sawtooth.analysis.reading_order import in_reading_order
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run import compile_log
from sawtooth.analysis.run.host import host_work
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.rank import RankTrace
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.recording_row import RecordingRow, row_of
from sawtooth.analysis.telemetry import run_telemetry as run_telemetry
from sawtooth.analysis.telemetry import step_marks
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.troughs import link
from sawtooth.analysis.units import in_words
from sawtooth.ingest.manifest import Manifest

RANGES_NOT_STORED = "not_stored_cuda_profiler_range"  # key of ingest's note on the events of CUPTI's range profiler
NO_GPU_WORK = "No GPU work is recorded in this run: profile with ProfilerActivity.CUDA, or `nsys profile --trace=cuda,nvtx`."
NO_GPU = "no_gpu"  # ingest's note on a trace without GPU operations
ON_CPU = "No GPU work is recorded in this run, and the recorder saw no GPU."


def analyse(manifest: Manifest, library: Library) -> RunResult:
    """Analyse ``manifest`` and build missing derived files.

    Raises SawtoothError if a recording is missing or damaged.
    """
    rows, diagnostics = _recordings(manifest, library)
    traces = [row for ref, row in zip(manifest.recordings, rows, strict=True) if ref.kind == "trace"]
    telemetry = run_telemetry.load(manifest, library, traces)
    marks = {
        ref.id: step_marks.step_mark_evidence(manifest, library, ref.rank) for ref in manifest.recordings if ref.kind == "trace"
    }
    pairs: list[tuple[RankResult, DeviceMeasurements]] = []
    for row in traces:
        with library.open(row.id) as recording:
            pairs += RankTrace(recording, row, manifest.facts, telemetry, marks[row.id], library.folder).ranks()
    measured = [of_rank for _, of_rank in pairs]
    ranks, communication = split_communication(library, [rank for rank, _ in pairs])
    if communication is not None:
        communication = as_one_job(
            library,
            ranks,
            communication,
            lambda joint: measured_ms(library, ranks, joint, telemetry),
            sampled=bool(telemetry.devices),
        )
    if manifest.summaries is not None:
        from sawtooth.analysis.cluster.overview import of_whole_job  # only for jobs with many ranks

        ranks, communication, lost = of_whole_job(library.folder, manifest.summaries, ranks, communication)
        diagnostics += [Diagnostic("summaries_lost", "error", lost, 1)] if lost else []
    ranks = at_job_step(library, ranks, measured, communication, telemetry)
    ranks = [doubts.checked(rank) for rank in ranks]
    lead = leading(ranks, communication)
    failed = doubts.failed_of(ranks, lead) if lead is not None else _without_records(manifest, library, diagnostics)
    if communication is not None:
        communication = with_parallelism(ranks, communication)
    diagnostics += trust.diagnostics_of(ranks)
    repeated = {check.key for check in failed} | (
        {NO_GPU} if failed and lead is None else set()
    )  # the GPU worked without records
    diagnostics = [diagnostic for diagnostic in diagnostics if diagnostic.key not in repeated]
    diagnostics += doubts.diagnostics_of(failed)
    diagnostics += [Diagnostic("telemetry_elsewhere", "error", sentence, 1) for sentence in _elsewhere(ranks, telemetry)]
    if telemetry.unknown is not None:
        diagnostics.append(Diagnostic("telemetry_not_attributed", "info", telemetry.unknown, 1))
    result = RunResult(
        manifest=manifest,
        ranks=ranks,
        lead=lead,
        recordings=rows,
        diagnostics=diagnostics,
        metrics=_run_metrics(lead, ranks, telemetry, communication, _no_gpu_work(manifest, library, telemetry, failed)),
        telemetry=telemetry,
        communication=communication,
        compile_log=compile_log.load(manifest, library, lead.rank if lead else None),
        failed=failed,
    )
    if lead is None:
        result = _of_the_host(result, library, marks)
        of_host, of_samples = check_host(result), check_telemetry(manifest, library, telemetry)
        result = replace(result, findings=[*of_host[0], *of_samples[0]], not_checked=[*of_host[1], *of_samples[1]])
        return in_reading_order(result, None)
    result = _with_troughs(result, library, lead)
    with open_rank(library, lead) as view:
        whatif = whatif_of(view.recording, lead)
        checked = check(RuleContext(result, lead, view.recording, lead.telemetry, whatif))
    findings = checked.findings
    hosts = list(hosts_of(manifest, library, telemetry))
    judged = statements(result, lead, hosts, findings)
    findings += beside_profile(hosts, lead, findings)
    result = replace(
        result,
        findings=findings,
        not_checked=checked.not_checked,
        statements=judged,
        below_the_bar=checked.below_the_bar,
    )
    return in_reading_order(result, whatif)


def _recordings(manifest: Manifest, library: Library) -> tuple[list[RecordingRow], list[Diagnostic]]:
    """Return the row of each of the run's recordings, with the run's rank, and ingest's diagnostics."""
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


def _of_the_host(result: RunResult, library: Library, marks: Mapping[str, StepTimeEvidence | None]) -> RunResult:
    """Return the result with the host's work if the traces contain only that.

    Of several traces, the one with the longest step is used. Without a trace, the loop's own marks still give the step time.
    """
    host_alone = not result.telemetry.devices and not step_marks.names_gpu(result.manifest, library)
    if (
        not marks
        and (alone := step_marks.step_mark_evidence(result.manifest, library, None, host_alone=host_alone)) is not None
    ):
        step = Reading(alone.ms, low=alone.low_ms, high=alone.high_ms, notes=alone.notes)
        return replace(result, metrics={**result.metrics, "best_step_time_ms": step})
    works = []
    for ref in (ref for ref in result.manifest.recordings if ref.id in marks):
        step_mark_evidence = step_marks.step_mark_evidence(result.manifest, library, ref.rank, host_alone=True)
        with library.open(ref.id) as recording:
            works.append(host_work(recording, result.manifest.facts.step_time_ms, step_mark_evidence))
    known = sorted((work for work in works if work is not None), key=lambda work: -(work.step.value or 0.0))
    if not known:
        return result
    if (
        result.withdrawn_by is not None
    ):  # the host's steps do not show the GPU's, but a step time measured outside the trace stays
        timed = known[0].step.low is not None
        step = known[0].step if timed else missing(result.withdrawn_by.sentence)
        return replace(result, metrics={**result.metrics, "best_step_time_ms": step})
    return replace(result, host=known[0], metrics={**result.metrics, "best_step_time_ms": known[0].step})


def _without_records(manifest: Manifest, library: Library, noted: list[Diagnostic]) -> tuple[FailedCheck, ...]:
    """Return the failed check of traces with launches but no GPU operations or with unread device events."""
    unread = next((diagnostic for diagnostic in noted if diagnostic.key == "device_not_read"), None)
    if unread is not None and (check := lost_records.check_unread(unread.count, unread.sentence)) is not None:
        return (check,)
    launches = 0
    for ref in manifest.recordings:
        if ref.kind == "trace":
            with library.open(ref.id) as recording:
                launches += len(lost_launches(recording.cursor, 0))
    ranges = any(diagnostic.key == RANGES_NOT_STORED for diagnostic in noted)
    check = lost_records.check_without_records(launches, by_ranges=ranges)
    return (check,) if check is not None else ()


def _elsewhere(ranks: list[RankResult], telemetry: RunTelemetry) -> list[str]:
    """Return the sentences about telemetry from another time than the traces, each once."""
    sentences = (run_telemetry.elsewhere(r.telemetry, telemetry.profile_ns(r.telemetry, r.trace)) for r in ranks)
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def _with_troughs(result: RunResult, library: Library, lead: RankResult) -> RunResult:
    """Return the result with the lead's sawtooth troughs linked to its trace; unchanged without one."""
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
    """Return the what-if engine of a rank; None if no replay explains its trace."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    if not rows or rank.best.estimate.value is None:
        return None
    counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
    return WhatIf(replay_store.load(rows[0][0]), rank.device, counted, bool(recording.named(LOADS_IN_WORKERS)))


def _on_cpu(manifest: Manifest, library: Library, telemetry: RunTelemetry) -> bool:
    """Return whether the recorder saw that the training has no GPU.

    It sampled none, and no process with step marks named one.
    """
    kinds = {ref.kind for ref in manifest.recordings}  # marks alone may be a script's own, which name no GPU
    return {"marks", "trace"} <= kinds and not telemetry.devices and not step_marks.names_gpu(manifest, library)


def _no_gpu_work(manifest: Manifest, library: Library, telemetry: RunTelemetry, failed: tuple[FailedCheck, ...]) -> str:
    """Return the reason why a run's traces have no GPU work."""
    if (check := deciding(failed)) is not None:
        return check.sentence
    return ON_CPU if _on_cpu(manifest, library, telemetry) else NO_GPU_WORK


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
    where = f"Of {which}: the slowest of {len(ranks)}."
    if communication is not None and communication.stragglers:
        late = communication.stragglers[0]
        name = who(late, ranks)
        takes = "take" if late.kind == "set" else "takes"
        where += f" {name[0].upper()}{name[1:]} {takes} {in_words(late.own_ms)} of a step longer than the others."
    return {k: replace(r, notes=(*r.notes, where)) for k, r in lead.metrics.items()}
