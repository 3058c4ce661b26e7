"""Analyse a run: one ``RunResult`` that every screen, the report and the comparison read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.findings.checking import check
from sawtooth.analysis.findings.plan import plan_of
from sawtooth.analysis.findings.rule import RuleContext
from sawtooth.analysis.knowledge.hardware import UNMEASURED_DISPATCH, Gpu, identify
from sawtooth.analysis.knowledge.owners import KERNEL_OWNERS
from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.metric import Measured
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import readings_of, readings_without_trace
from sawtooth.analysis.metrics.step_time import choose_step_time
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.metrics.witness import StepWork, Witness
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.ranks.job import as_one_job
from sawtooth.analysis.ranks.job_step import at_job_step, leading
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.edits import WhatIf
from sawtooth.analysis.run import compile_log
from sawtooth.analysis.run.at_best import at_best
from sawtooth.analysis.run.host import host_work
from sawtooth.analysis.run.model import Communication, LedgerRow, RankResult, RunResult
from sawtooth.analysis.run.verdict import busy_ms
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.calibration import dispatch_of
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.telemetry import of_run as run_telemetry
from sawtooth.analysis.telemetry import step_marks
from sawtooth.analysis.telemetry.of_run import RunTelemetry
from sawtooth.analysis.telemetry.profile_fit import judge_profile
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.telemetry.troughs import Troughs, link
from sawtooth.ingest.schema import DataFolder, Manifest, RecordingRef

LOADER_WORKERS = "_MultiProcessingDataLoaderIter"  # in names of the trace where worker processes load
NEVER_WAITED = 0.01  # of the step: a loader that costs the profiled steps less had its batches ready


def analyse(manifest: Manifest, library: Library) -> RunResult:
    """Analyse ``manifest``, building derived files that are missing. Raises SawtoothError when a recording is missing or damaged."""
    ranks: list[RankResult] = []
    infos: list[dict[str, Any]] = []
    diagnostics: list[Diagnostic] = []
    for ref in manifest.recordings:
        ensure_derived(library.folder, ref.id)
        with library.open(ref.id, derived=False) as recording:
            info = recording.frame("SELECT * FROM recording").iloc[0].to_dict()
            infos.append({**info, "rank": ref.rank if ref.rank is not None else _none(info["rank"])})
            diagnostics += [
                Diagnostic(*row)
                for row in recording.rows("SELECT key, severity, sentence, count FROM diagnostics ORDER BY key")
            ]
    traces = [(ref, info) for ref, info in zip(manifest.recordings, infos, strict=True) if ref.kind == "trace"]
    telemetry = run_telemetry.load(manifest, library, [info for _, info in traces])
    marks = {ref.id: step_marks.witness(manifest, library, ref.rank) for ref, _ in traces}
    measured: list[Measured] = []
    for ref, info in traces:
        with library.open(ref.id) as recording:
            pairs = _ranks_of(
                recording=recording,
                ref=ref,
                info=info,
                manifest=manifest,
                telemetry=telemetry,
                marks=marks[ref.id],
                folder=library.folder,
            )
            ranks += [rank for rank, _ in pairs]
            measured += [of_rank for _, of_rank in pairs]
    ranks, communication = split_communication(library, ranks)
    if communication is not None:
        communication = as_one_job(library, ranks, communication)
    ranks = at_job_step(library, ranks, measured, communication, telemetry)
    lead = leading(ranks, communication)
    diagnostics += trust.diagnostics_of(ranks)
    diagnostics += [Diagnostic("telemetry_elsewhere", "error", sentence, 1) for sentence in _elsewhere(ranks, telemetry)]
    if telemetry.unknown is not None:
        diagnostics.append(Diagnostic("telemetry_not_attributed", "info", telemetry.unknown, 1))
    metrics = _run_metrics(lead, ranks, telemetry, communication)
    result = RunResult(
        manifest=manifest,
        ranks=ranks,
        lead=lead,
        recordings=infos,
        diagnostics=diagnostics,
        metrics=metrics,
        telemetry=telemetry,
        communication=communication,
        compile_log=compile_log.load(manifest, library, lead.rank if lead else None),
    )
    if lead is None:
        return _of_the_host(result, library, marks)
    troughs = _troughs(library, lead, telemetry)
    if troughs is not None:
        period = metrics["sawtooth_period_s"]
        result = replace(
            result,
            troughs=troughs,
            metrics={**metrics, "sawtooth_period_s": replace(period, notes=(*period.notes, *troughs.notes()))},
        )
    with open_rank(library, lead) as view:
        whatif = whatif_of(view.recording, lead)
        findings, not_checked = check(RuleContext(result, lead, view.recording, lead.telemetry, whatif))
    return replace(result, findings=findings, not_checked=not_checked, plan=plan_of(whatif, lead.best, findings))


def _of_the_host(result: RunResult, library: Library, marks: Mapping[str, Witness | None]) -> RunResult:
    """Return the result with what the host did, where its traces hold that alone; of several traces, of the one with the longest step.

    Without a trace, the loop's own marks still tell how long a step takes.
    """
    if not marks and (alone := step_marks.witness(result.manifest, library, None)) is not None:
        step = Reading(alone.ms, low=alone.low_ms, high=alone.high_ms, notes=alone.notes)
        return replace(result, metrics={**result.metrics, "best_step_time_ms": step})
    works = []
    for recording_id, witness in marks.items():
        with library.open(recording_id) as recording:
            works.append(host_work(recording, result.manifest.facts.step_time_ms, witness))
    known = sorted((work for work in works if work is not None), key=lambda work: -(work.step.value or 0.0))
    if not known:
        return result
    return replace(result, host=known[0], metrics={**result.metrics, "best_step_time_ms": known[0].step})


def _elsewhere(ranks: list[RankResult], telemetry: RunTelemetry) -> list[str]:
    """Return what is said of telemetry that does not show the traces' time, each sentence once."""
    sentences = (run_telemetry.elsewhere(r.telemetry, _profile_ns(telemetry, r.telemetry, r.info)) for r in ranks)
    return list(dict.fromkeys(sentence for sentence in sentences if sentence))


def _troughs(library: Library, lead: RankResult, telemetry: RunTelemetry) -> Troughs | None:
    """Link the troughs of the lead's sawtooth to its trace; None without a sawtooth."""
    if lead.telemetry is None:
        return None
    counted = len(lead.counted)
    kernel_ms = sum(row.ns for row in lead.ledger if row.owner in KERNEL_OWNERS) / counted / 1e6 if counted else None
    step_ms = lead.best.ms if counted and lead.best.represented else None
    clock = telemetry.clocks[lead.telemetry.recording_id]
    trace = (lead.recording_id, lead.device) if clock.shares(str(lead.info["clock"])) else None
    return link(library, lead.telemetry, clock, trace, step_ms, kernel_ms)


def whatif_of(recording: Recording, rank: RankResult) -> WhatIf | None:
    """Return the what-if engine of a rank, None where its trace has no replay that explains it."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    if not rows or rank.best.estimate.value is None:
        return None
    counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
    return WhatIf(replay_store.load(rows[0][0]), rank.device, counted)


def _run_metrics(
    lead: RankResult | None, ranks: list[RankResult], telemetry: RunTelemetry, communication: Communication | None
) -> dict[str, Reading]:
    if lead is None:
        reason = "No GPU work is recorded in this run: profile with ProfilerActivity.CUDA."
        return readings_without_trace(telemetry.busiest, reason)
    if len(ranks) == 1:
        return lead.metrics
    which = f"rank {lead.rank}, device {lead.device}" if lead.rank is not None else f"device {lead.device}"
    where = f"Of {which}: the slowest of {len(ranks)}."
    if communication is not None and communication.stragglers:
        late = communication.stragglers[0]
        names = [f"rank {r.rank}" if r.rank is not None else f"device {r.device}" for r in (ranks[p] for p in late.positions)]
        name = names[0] if len(names) == 1 else f"{len(names)} ranks"
        where += f" {name.capitalize()} takes {late.own_ms:.3g} ms of a step longer than the others."
    return {k: replace(r, notes=(*r.notes, where)) for k, r in lead.metrics.items()}


def _none(value: Any) -> Any:
    return None if pd.isna(value) else value


def _ranks_of(
    recording: Recording,
    ref: RecordingRef,
    info: dict[str, Any],
    manifest: Manifest,
    telemetry: RunTelemetry,
    marks: Witness | None,
    folder: DataFolder,
) -> list[tuple[RankResult, Measured]]:
    facts = {key: json.loads(value) for key, value in recording.rows("SELECT key, value FROM facts")}
    devices = [int(row[0]) for row in recording.rows("SELECT DISTINCT device FROM windows ORDER BY device")]
    return [
        _rank(
            recording=recording,
            ref=ref,
            info=info,
            facts=facts,
            device=device,
            manifest=manifest,
            telemetry=telemetry,
            marks=marks,
            folder=folder,
        )
        for device in devices
    ]


def _rank(
    recording: Recording,
    ref: RecordingRef,
    info: dict[str, Any],
    facts: dict[str, Any],
    device: int,
    manifest: Manifest,
    telemetry: RunTelemetry,
    marks: Witness | None,
    folder: DataFolder,
) -> tuple[RankResult, Measured]:
    steps = recording.frame("SELECT * EXCLUDE (device) FROM steps WHERE device = ? ORDER BY step", [device])
    window_ns = int(recording.rows("SELECT coalesce(sum(end_ns - start_ns), 0) FROM windows WHERE device = ?", [device])[0][0])
    name, gpu = _gpu(recording, device, _none(info["vendor"]))
    if gpu is not None:
        gpu = replace(gpu, dispatch=dispatch_of(folder, name) or gpu.dispatch)
    kernels = recording.frame(
        "SELECT category, kind, sum(total_ns)::BIGINT AS ns, sum(launches)::BIGINT AS launches, sum(sm_efficiency_ns) AS sm_ns, "
        "sum(total_ns) FILTER (tensor_cores = 'unknown') AS undecided_ns, "
        "sum(mean_occupancy_pct * total_ns) / sum(total_ns) FILTER (mean_occupancy_pct IS NOT NULL) AS occupancy_pct, "
        "sum(occupancy_unseen_ns) AS occupancy_unseen_ns "
        "FROM kernels WHERE device = ? GROUP BY category, kind ORDER BY ns DESC",
        [device],
    )
    counted = int(steps["counted"].sum())
    ledger = _ledger(recording, device, window_ns, counted)
    own = facts.get(f"device_{device}", {})
    sampled = telemetry.of(ref.id, device)
    work = _work(recording=recording, device=device, ledger=ledger, facts=own, counted=counted, gpu=gpu)
    by_telemetry = run_telemetry.witness(sampled, _profile_ns(telemetry, sampled, info), work) if work is not None else None
    best = choose_step_time(
        steps,
        own.get("estimate"),
        manifest.facts.step_time_ms,
        work=work,
        telemetry=by_telemetry if isinstance(by_telemetry, Witness) else None,
        marks=marks,
    )
    ledger = at_best(ledger, best)
    measured = Measured(
        best=best,
        counted=counted,
        window_ns=window_ns,
        owned_ns=_owned_ns(ledger),
        kernels=kernels,
        facts=own,
        gpu=gpu,
        user=manifest.facts,
        works_ms=busy_ms(best, ledger, counted) if counted else None,
        allocated_bytes=_allocated_bytes(recording, device),
        sampled=sampled,
        away=run_telemetry.elsewhere(sampled, _profile_ns(telemetry, sampled, info)),
    )
    result = RankResult(
        recording_id=ref.id,
        rank=ref.rank if ref.rank is not None else _none(info["rank"]),
        device=device,
        device_name=name,
        gpu=gpu,
        info=info,
        facts=own,
        step_source=facts.get("step_source", "none"),
        steps=steps,
        window_ns=window_ns,
        best=best,
        metrics=trust.apply(readings_of(measured), info, own),
        ledger=ledger,
        categories=_categories(kernels),
        phases=own.get("phases", []),
        telemetry=sampled,
        represents=judge_profile(by_telemetry, (own.get("estimate") or {}).get("step_ns"), best.mean_ms)
        if by_telemetry is not None
        else None,
        work=work,
    )
    return result, measured


def _work(
    recording: Recording, device: int, ledger: list[LedgerRow], facts: dict[str, Any], counted: int, gpu: Gpu | None
) -> StepWork | None:
    """Return what the GPU does in a step, None without counted steps."""
    if not counted:
        return None
    owned = {owner: ns / counted for owner, ns in _owned_ns(ledger).items()}
    # Collectives beside computation count too: waiting in them keeps the GPU busy either way.
    copies, pageable, communication = recording.rows(
        "SELECT coalesce(sum(total_ns) FILTER (kind = 'memcpy'), 0), coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND contains(name, 'Pageable')), 0), "
        "coalesce(sum(total_ns) FILTER (category = 'communication'), 0) FROM kernels JOIN names USING (name_id) WHERE device = ?",
        [device],
    )[0]
    waits = sum(row.ns for row in ledger if row.cause == "data_wait") / counted
    workers = recording.rows("SELECT 1 FROM names WHERE contains(name, ?) LIMIT 1", [LOADER_WORKERS])
    return StepWork(
        kernel_ns=sum(owned.get(owner, 0.0) for owner in KERNEL_OWNERS),
        dispatched=(facts["kernels_in_counted_steps"] - facts["graph_kernels_in_counted_steps"]) / counted,
        communication_ns=float(communication) / counted,
        copies_ns=float(copies) / counted,
        pageable_ns=float(pageable) / counted,
        loading_ns=0.0 if workers else waits,
        hidden_loader=bool(workers) and waits < NEVER_WAITED * sum(owned.values()),
        dispatch=gpu.dispatch if gpu is not None else UNMEASURED_DISPATCH,
    )


def _profile_ns(telemetry: RunTelemetry, sampled: DeviceTelemetry | None, info: dict[str, Any]) -> tuple[int, int] | None:
    """Return (first, last) times of a trace's events on the clock of ``sampled``, None where they share none."""
    clock = telemetry.clocks.get(sampled.recording_id) if sampled is not None else None
    shared = clock is not None and clock.shares(str(info["clock"]))
    return (int(info["first_ns"]), int(info["last_ns"])) if shared else None


def _gpu(recording: Recording, device: int, vendor: str | None) -> tuple[str | None, Gpu | None]:
    """Return name and peaks of a device.

    ROCm's ordinals count the CPUs first, so that a trace's kernels may run on device 2 of a list that ends at 0: where the ordinal is
    not listed, the list decides if it knows one model only.
    """
    columns = "name, compute_major, compute_minor, sms"
    rows = recording.rows(f"SELECT {columns}, memory_bytes FROM devices WHERE device = ?", [device])
    if not rows:
        models = recording.rows(f"SELECT {columns}, max(memory_bytes) FROM devices GROUP BY {columns}")
        rows = models if len(models) == 1 else []
    if not rows:
        return None, None
    name, major, minor, sms, memory = rows[0]
    gpu = identify(name=name, compute_major=major, compute_minor=minor, sms=sms, memory_bytes=memory, vendor=vendor)
    return name or (gpu.name if gpu else None), gpu


def _ledger(recording: Recording, device: int, window_ns: int, counted: int) -> list[LedgerRow]:
    rows = recording.rows(
        "SELECT owner, cause, ns, unprofiled_ns_per_step FROM causes WHERE device = ? AND (ns > 0 OR unprofiled_ns_per_step > 0) ORDER BY ns DESC",
        [device],
    )
    return [
        LedgerRow(
            device=device,
            owner=owner,
            cause=cause,
            ns=ns,
            ms_per_step=ns / counted / 1e6 if counted else None,
            ms_per_step_unprofiled_est=estimate / 1e6 if estimate is not None else None,
            share=ns / window_ns if window_ns else 0.0,
        )
        for owner, cause, ns, estimate in rows
    ]


def _owned_ns(ledger: list[LedgerRow]) -> dict[str, int]:
    owned: dict[str, int] = {}
    for row in ledger:
        owned[row.owner] = owned.get(row.owner, 0) + row.ns
    return owned


def _allocated_bytes(recording: Recording, device: int) -> float | None:
    """Return the most that the allocator's events saw in use on a device, None where there are none."""
    sql = "SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?"
    peak = recording.rows(sql, [device])[0][0]
    return float(peak) if peak else None


def _categories(kernels: pd.DataFrame) -> pd.DataFrame:
    table = (
        kernels.groupby("category", as_index=False)[["ns", "launches"]]
        .sum()
        .sort_values("ns", ascending=False, ignore_index=True)
    )
    total = table["ns"].sum()
    return table.assign(share=table["ns"] / total if total else 0.0)
