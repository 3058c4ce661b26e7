"""Analyse a run: one ``RunResult`` that every screen, the report and the comparison read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis import mfu, replay_store, run_telemetry, trust
from analysis.derive import ensure_derived
from analysis.findings import RuleInput, check
from analysis.hardware import Gpu, identify
from analysis.judgement import busy_ms
from analysis.metrics import METRICS, Reading, missing
from analysis.rank_waits import meet, tell
from analysis.recordings import Library, Recording
from analysis.representative import Representativeness
from analysis.run_result import Communication, LedgerRow, RankResult, RunResult
from analysis.run_telemetry import RunTelemetry
from analysis.step_time import BestStepTime, choose_step_time
from analysis.telemetry import DeviceTelemetry
from analysis.troughs import Troughs, link
from analysis.trust import Diagnostic
from analysis.whatif import TimedOps, WhatIf
from ingest.schema import Manifest, RecordingRef

KERNEL_OWNERS = ("tensor_core_compute", "other_compute", "exposed_comm")  # their sum is the union of kernels
NO_STEPS = (
    "The trace has no steps: no ProfilerStep, optimizer step or repeated annotation. Call `profiler.step()` after each step."
)


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
    for ref, info in traces:
        with library.open(ref.id) as recording:
            ranks += _ranks_of(recording, ref, info, manifest, telemetry)
    ranks, communication = meet(library, ranks)
    ranks = [replace(rank, metrics=trust.unsure_of_waits(rank.metrics, _waits_ms(rank), rank.best.source)) for rank in ranks]
    if communication is not None and communication.straggler is not None:
        communication = _alone(library, ranks, communication)
    lead = max(ranks, key=_pace) if ranks else None
    diagnostics += trust.diagnostics_of(ranks)
    diagnostics += [Diagnostic("telemetry_elsewhere", "error", sentence, 1) for sentence in _elsewhere(ranks, telemetry)]
    metrics = _run_metrics(lead, ranks, telemetry, communication)
    result = RunResult(manifest, ranks, lead, infos, diagnostics, metrics, telemetry=telemetry, communication=communication)
    if lead is None:
        return result
    troughs = _troughs(library, lead, telemetry)
    if troughs is not None:
        period = metrics["sawtooth_period_s"]
        result = replace(
            result,
            troughs=troughs,
            metrics={**metrics, "sawtooth_period_s": replace(period, notes=(*period.notes, *troughs.notes()))},
        )
    with library.open(lead.recording_id) as recording:
        tell(recording, lead)
        found, not_checked = check(RuleInput(result, lead, recording, lead.telemetry, whatif_of(recording, lead)))
    return replace(result, findings=found, not_checked=not_checked)


def _elsewhere(ranks: list[RankResult], telemetry: RunTelemetry) -> list[str]:
    """Return what is said of telemetry that does not show the traces' time, each sentence once."""
    found = (run_telemetry.elsewhere(r.telemetry, _profile_ns(telemetry, r.telemetry, r.info)) for r in ranks)
    return list(dict.fromkeys(sentence for sentence in found if sentence))


def _troughs(library: Library, lead: RankResult, telemetry: RunTelemetry) -> Troughs | None:
    """Link the troughs of the lead's sawtooth to its trace; None without a sawtooth."""
    if lead.telemetry is None:
        return None
    counted = len(lead.counted)
    kernel_ms = sum(row.ns for row in lead.ledger if row.owner in KERNEL_OWNERS) / counted / 1e6 if counted else None
    step_ms = lead.best.ms if counted and lead.best.source != "telemetry" else None
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


def _alone(library: Library, ranks: list[RankResult], met: Communication) -> Communication:
    """Add what each rank's step would take if no other held it up."""
    waits = []
    for position, (rank, wait) in enumerate(zip(ranks, met.ranks, strict=True)):
        rows = met.rows[met.rows["position"] == position]
        with library.open(rank.recording_id) as recording:
            whatif = whatif_of(recording, rank)
        if whatif is not None and len(rows):
            shortest = TimedOps(tuple(rows["gpu_op_id"].tolist()), tuple(rows["shortest_ns"].tolist()))
            wait = replace(wait, alone_ms=whatif.step_ms((shortest,)))
        waits.append(wait)
    return replace(met, ranks=tuple(waits))


def _waits_ms(rank: RankResult) -> float:
    """Return the exposed communication per step that may be waiting: all of it where no other rank tells."""
    rows = (row for row in rank.ledger if row.owner == "exposed_comm" and row.cause in trust.MAY_WAIT)
    return sum(row.ms_per_step or 0.0 for row in rows)


def _pace(rank: RankResult) -> tuple[float, int]:
    """Order ranks by what a step takes them without waiting for others: collectives make their steps equal, so steps alone tell nothing."""
    value = rank.metrics["step_time_ms"].value
    waits_ms = sum(row.ms_per_step or 0.0 for row in rank.ledger if row.owner == "exposed_comm" and row.cause == "comm_wait")
    return (value - waits_ms if value is not None else -1.0, rank.window_ns)


def _run_metrics(
    lead: RankResult | None, ranks: list[RankResult], telemetry: RunTelemetry, communication: Communication | None
) -> dict[str, Reading]:
    if lead is None:
        reason = "No GPU work is recorded in this run: profile with ProfilerActivity.CUDA."
        sampled = telemetry.of(None, 0, 1)
        known = run_telemetry.metrics_of(sampled, missing(reason)) if sampled else {}
        return {key: known.get(key) or missing(reason) for key in METRICS}
    if len(ranks) == 1:
        return lead.metrics
    which = f"rank {lead.rank}, device {lead.device}" if lead.rank is not None else f"device {lead.device}"
    where = f"Of {which}: the slowest of {len(ranks)}."
    late = communication.straggler if communication else None
    if late is not None:
        name = f"rank {late.rank}" if late.rank is not None else f"device {ranks[late.position].device}"
        where += f" The others wait for {name}, {late.late_ms:.3g} ms a step."
    return {k: Reading(r.value, r.why_missing, r.trust, (*r.notes, where)) for k, r in lead.metrics.items()}


def _none(value: Any) -> Any:
    return None if pd.isna(value) else value


def _ranks_of(
    recording: Recording, ref: RecordingRef, info: dict[str, Any], manifest: Manifest, telemetry: RunTelemetry
) -> list[RankResult]:
    facts = {key: json.loads(value) for key, value in recording.rows("SELECT key, value FROM facts")}
    devices = [int(row[0]) for row in recording.rows("SELECT DISTINCT device FROM windows ORDER BY device")]
    return [_rank(recording, ref, info, facts, device, manifest, telemetry, len(devices)) for device in devices]


def _rank(
    recording: Recording,
    ref: RecordingRef,
    info: dict[str, Any],
    facts: dict[str, Any],
    device: int,
    manifest: Manifest,
    telemetry: RunTelemetry,
    devices: int,
) -> RankResult:
    steps = recording.frame("SELECT * EXCLUDE (device) FROM steps WHERE device = ? ORDER BY step", [device])
    window_ns = int(recording.rows("SELECT coalesce(sum(end_ns - start_ns), 0) FROM windows WHERE device = ?", [device])[0][0])
    name, gpu = _gpu(recording, device, _none(info["vendor"]))
    kernels = recording.frame(
        "SELECT category, kind, sum(total_ns)::BIGINT AS ns, sum(launches)::BIGINT AS launches, sum(sm_efficiency_ns) AS sm_ns, "
        "sum(mean_occupancy_pct * total_ns) / sum(total_ns) FILTER (mean_occupancy_pct IS NOT NULL) AS occupancy_pct "
        "FROM kernels WHERE device = ? GROUP BY category, kind ORDER BY ns DESC",
        [device],
    )
    counted = int(steps["counted"].sum())
    ledger = _ledger(recording, device, window_ns, counted)
    own = facts.get(f"device_{device}", {})
    sampled = telemetry.of(name, device, devices)
    judged = _represents(telemetry, sampled, info, ledger, own, counted)
    best = choose_step_time(steps, own.get("estimate"), manifest.facts.step_time_ms, judged.reading() if judged else None)
    busy = window_ns - sum(row.ns for row in ledger if row.owner == "idle")
    metrics = _metrics(steps, window_ns, ledger, kernels, own, best, recording, device)
    works_ms = busy_ms(best, ledger, counted) if counted else None
    clock = run_telemetry.clock_of(sampled)
    metrics.update(mfu.readings(own.get("flops"), gpu, best, busy, counted, manifest.facts, clock, works_ms))
    away = run_telemetry.elsewhere(sampled, _profile_ns(telemetry, sampled, info))
    metrics.update(run_telemetry.metrics_of(sampled, metrics["peak_memory_bytes"], away))
    metrics = trust.apply(metrics, info, own)
    return RankResult(
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
        metrics={
            key: metrics.get(key) or missing("Not computed: nothing in this run's recordings tells it.") for key in METRICS
        },
        ledger=ledger,
        categories=_categories(kernels),
        phases=own.get("phases", []),
        telemetry=sampled,
        represents=judged,
    )


def _represents(
    telemetry: RunTelemetry,
    sampled: DeviceTelemetry | None,
    info: dict[str, Any],
    ledger: list[LedgerRow],
    facts: dict[str, Any],
    counted: int,
) -> Representativeness | None:
    """Judge the profiled steps by telemetry: kernels only, since utilization does not count copies."""
    if not counted:
        return None
    kernel_ns = sum(row.ns for row in ledger if row.owner in KERNEL_OWNERS) / counted
    profile = _profile_ns(telemetry, sampled, info)
    kernels = facts.get("kernels_in_counted_steps", 0) / counted
    return run_telemetry.represents(
        telemetry, sampled, profile, kernel_ns, kernels, (facts.get("estimate") or {}).get("step_ns")
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
    gpu = identify(name, major, minor, sms, memory, vendor)
    return name or (gpu.name if gpu else None), gpu


def _ledger(recording: Recording, device: int, window_ns: int, counted: int) -> list[LedgerRow]:
    rows = recording.rows(
        "SELECT owner, cause, ns, unprofiled_ns_per_step FROM causes WHERE device = ? AND (ns > 0 OR unprofiled_ns_per_step > 0) ORDER BY ns DESC",
        [device],
    )
    return [
        LedgerRow(
            device,
            owner,
            cause,
            ns,
            ns / counted / 1e6 if counted else None,
            estimate / 1e6 if estimate is not None else None,
            ns / window_ns if window_ns else 0.0,
        )
        for owner, cause, ns, estimate in rows
    ]


def _categories(kernels: pd.DataFrame) -> pd.DataFrame:
    table = (
        kernels.groupby("category", as_index=False)[["ns", "launches"]]
        .sum()
        .sort_values("ns", ascending=False, ignore_index=True)
    )
    total = table["ns"].sum()
    return table.assign(share=table["ns"] / total if total else 0.0)


def _metrics(
    steps: pd.DataFrame,
    window_ns: int,
    ledger: list[LedgerRow],
    kernels: pd.DataFrame,
    facts: dict[str, Any],
    best: BestStepTime,
    recording: Recording,
    device: int,
) -> dict[str, Reading]:
    owned: dict[str, int] = {}
    for row in ledger:
        owned[row.owner] = owned.get(row.owner, 0) + row.ns
    no_window = missing("The device ran nothing that the trace links to a launch.")
    compute = owned.get("tensor_core_compute", 0) + owned.get("other_compute", 0)
    rows = recording.rows(
        "SELECT sum(total_ns) FILTER (tensor_cores = 'unknown'), sum(total_ns) FROM kernels WHERE device = ? AND kind = 'kernel' "
        "AND category NOT IN ('communication', 'memcpy', 'memset')",
        [device],
    )
    unknown_ns, kernel_ns = (float(v) if v is not None else 0.0 for v in rows[0])
    counted = int(steps["counted"].sum())
    out: dict[str, Reading] = {
        "step_time_ms": best.profiled,
        "step_time_unprofiled_est_ms": best.estimate,
        "step_time_best_ms": best.reading,
        "gpu_busy_share": Reading(1 - owned.get("idle", 0) / window_ns) if window_ns else no_window,
        "gpu_idle_share": Reading(owned.get("idle", 0) / window_ns) if window_ns else no_window,
        "exposed_comm_share": Reading(owned.get("exposed_comm", 0) / window_ns) if window_ns else no_window,
        "tensor_core_time_share": Reading(owned.get("tensor_core_compute", 0) / compute)
        if compute
        else missing("No compute kernel ran."),
        "tensor_core_unknown_share": Reading(unknown_ns / kernel_ns) if kernel_ns else missing("No compute kernel ran."),
        "kernel_launches_per_step": Reading(facts["kernels_in_counted_steps"] / counted) if counted else missing(NO_STEPS),
    }
    compute_kernels = kernels[kernels["kind"] == "kernel"]
    sm_ns = compute_kernels["sm_ns"].sum(min_count=1)
    unrecorded = missing("The trace has no launch sizes per SM (ROCm and other runtimes do not record them).")
    out["sm_efficiency"] = Reading(min(float(sm_ns) / window_ns, 1.0)) if window_ns and pd.notna(sm_ns) else unrecorded
    known = compute_kernels[compute_kernels["occupancy_pct"].notna()]
    weight = known["ns"].sum()
    out["achieved_occupancy"] = (
        Reading(
            float((known["occupancy_pct"] * known["ns"]).sum() / weight / 100),
            notes=("The profiler's estimate, not a measurement.",),
        )
        if weight
        else missing("The trace has no occupancy estimates.")
    )
    peak = recording.rows("SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?", [device])[
        0
    ][0]
    out["peak_memory_bytes"] = (
        Reading(float(peak)) if peak else missing("Not recorded: profile with `profile_memory=True`, or attach telemetry.")
    )
    return out
