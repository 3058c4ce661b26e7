"""Build analysed runs by hand, without a store, for tests of comparisons, gates and sweeps."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.run.model import Finding, LedgerRow, NotChecked, RankResult, RunResult
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.ingest.manifest import Manifest, RecordingRef, UserFacts
from tests.support.actions import act


def run_of(
    identifier="a" * 16,
    *,
    ledger=(("other_compute", None, 700, 0.0007), ("idle", "launch_bound", 300, 0.0003)),
    counted=1,
    best_ms=None,
    source="profile",
    metrics=None,
    findings=(),
    not_checked=(),
    settings=None,
    tags=(),
    facts=None,
    device="NVIDIA H200",
    **recorded,
):
    """Return a run with the given ledger and steps of equal length.

    Ledger rows are (owner, cause, ns of the window, unprofiled ms per step).
    """
    window = sum(row[2] for row in ledger)
    ends = [window * (k + 1) // counted for k in range(counted)]
    steps = pd.DataFrame(
        {
            "step": range(counted),
            "start_ns": [0, *ends[:-1]],
            "end_ns": ends,
            "counted": True,
        }
    )
    mean_ms = window / counted / 1e6
    best = Reading(best_ms if best_ms is not None else mean_ms)
    values = {key: missing("Not in this test.") for key in METRICS}
    values |= {"best_step_time_ms": best, "step_time_ms": Reading(mean_ms)}
    values |= {key: Reading(value) for key, value in (metrics or {}).items()}
    rank = RankResult(
        recording_id=identifier,
        rank=None,
        device=0,
        device_name=device,
        gpu=None,
        trace=RecordingRow(identifier, "trace", **recorded),
        facts=DeviceFacts(),
        step_source="profiler_step",
        steps=steps,
        window_ns=window,
        best=BestStepTime(source, best, Reading(mean_ms), missing("No replay."), mean_ms),
        metrics=values,
        ledger=[LedgerRow(0, owner, cause, ns, ns / counted / 1e6, ms, ns / window) for owner, cause, ns, ms in ledger],
        categories=pd.DataFrame(),
    )
    manifest = Manifest(
        identifier,
        f"run {identifier[:4]}",
        [RecordingRef(identifier, "trace", "trace.json")],
        settings=settings or {},
        tags=list(tags),
        facts=facts or UserFacts(),
    )
    return RunResult(
        manifest, [rank], rank, [rank.trace], [], values,
        [finding_of(rule) for rule in findings], [NotChecked(rule, "no data") for rule in not_checked],
    )  # fmt: skip


def finding_of(rule):
    return Finding(rule, "warning", f"{rule} costs time", act("Change it."), "high", ceiling_ms_per_step=1.0)


def side(*runs, kernels=(), operators=(), steps=None):
    measured = tuple(
        MeasuredSteps(
            tuple(steps or r.lead.device_step_ms), r.metrics["best_step_time_ms"].value, r.lead.best.source, (r.manifest.id,)
        )
        for r in runs
    )
    return Side(runs, measured, tuple(kernels), tuple(operators))


class NoRows:
    """A recording without gaps."""

    def frame(self, sql: str, parameters: object = None) -> pd.DataFrame:
        return pd.DataFrame(columns=["start_ns", "end_ns"])
