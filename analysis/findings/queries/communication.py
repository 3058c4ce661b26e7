"""Collectives of the lead device: their pass within the step, and the host calls around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.knowledge.owners import OWNERS
from sawtooth.analysis.ranks.collectives import load
from sawtooth.analysis.ranks.communication import BUS_FACTORS
from sawtooth.analysis.ranks.groups import parallelisms
from sawtooth.analysis.run.job import SEND_RECEIVE, Parallelism

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

# What a rank's exposed collectives serve: a parallelism of its groups, or "ddp", "fsdp" or "optimizer", which the step's
# annotations name.
Purpose = Parallelism | Literal["ddp", "fsdp", "optimizer"]
FSDP = r"^(FullyShardedDataParallel\.|FSDP::)"  # The annotations of both FSDP classes begin like this.
DDP = r"^DistributedDataParallel\."
SENDS = r"^(c10d::(send|recv_)$|nccl:(send|recv)|PP:)"
LARGE_BYTES = 1_000_000  # Smaller collectives are limited by latency, not by the link.


def collectives(context: RuleContext) -> pd.DataFrame:
    """Return the communication kernels of the counted steps in order of start.

    Columns as in ``ranks.collectives.load``. Callers must not change the shared frame.
    """
    return context.once(_collectives)


def _collectives(context: RuleContext) -> pd.DataFrame:
    rows, _ = load(context.recording, context.rank.device, context.rank.steps)
    return rows[rows["counted"]].reset_index(drop=True)


def overlap_cost(context: RuleContext, rows: pd.DataFrame) -> pd.Series:
    """Return the share of each collective's duration by which it delays overlapping kernels.

    Each block of a collective occupies one multiprocessor. 0 if the number of multiprocessors is not known.
    """
    sms = context.rank.gpu.sms if context.rank.gpu is not None else None
    if not sms:
        return pd.Series(0.0, index=rows.index)
    return (rows["blocks"].astype("Float64").fillna(0.0).astype(float) / sms).clip(upper=1.0)


def purpose_of(context: RuleContext) -> Purpose | None:
    """Return the purpose of most of the exposed communication in the counted steps, None if unknown.

    Communication inside an optimizer's step is the optimizer's own, such as the gathers of a sharded one.
    """
    rows = collectives(context)
    rows = rows[rows["exposed_ns"] > 0]
    total_ns = float(rows["exposed_ns"].sum())
    if not total_ns:
        return None
    updating = rows["gpu_op_id"].isin(launched_by_optimizer(context.recording, context.rank.device))
    if float(rows.loc[updating, "exposed_ns"].sum()) > total_ns / 2:
        return "optimizer"
    keyed = rows.assign(key=pd.factorize(rows["group"])[0] * 2 + (rows["name"] == SEND_RECEIVE), shortest_ns=rows["dur_ns"])
    kinds = keyed["key"].map(parallelisms(keyed))
    if not context.recording.named(SENDS):  # Older NCCL also names the kernels of an all-to-all SendRecv.
        kinds = kinds.where((keyed["name"] != SEND_RECEIVE) | (kinds != "pp"), None)
    spent = keyed.groupby(kinds, dropna=True)["exposed_ns"].sum()
    kind = None if spent.empty else cast(Parallelism, spent.idxmax())
    if kind != "dp":
        return kind
    return "fsdp" if context.recording.named(FSDP) else "ddp" if context.recording.named(DDP) else "dp"


def overlap_limit_ms(context: RuleContext) -> float:
    """Return the ms per step that overlap can hide at most: computation without communication."""
    rows = collectives(context)
    overlapped_ms = float((rows["dur_ns"] - rows["exposed_ns"]).sum()) / 1e6 / max(len(context.rank.counted), 1)
    computes = {owner.key for owner in OWNERS if owner.computes}
    return max(sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.owner in computes) - overlapped_ms, 0.0)


def bus_gb_s(context: RuleContext) -> float | None:
    """Return the bus bandwidth in GB/s of the quickest large collective; None if no size is recorded.

    Slower collectives may have waited for a late rank.
    """
    rows = collectives(context)
    large = rows[(rows["bytes"].fillna(0) >= LARGE_BYTES) & rows["name"].isin(BUS_FACTORS) & (rows["group_size"].fillna(0) > 1)]
    rates = [
        row["bytes"] * BUS_FACTORS[row["name"]](int(row["group_size"])) / row["dur_ns"]
        for row in large.to_dict("records")
        if row["dur_ns"]
    ]
    return max(rates, default=None)


def by_pass(context: RuleContext, rows: pd.DataFrame, annotation: str) -> pd.DataFrame:
    """Return ``rows`` of ``collectives`` with the pass of the step that launched them.

    ``passes`` counts how often ``annotation`` begins in the step. ``nth`` is the pass that launched the row, from 0. Rows
    launched before the first pass are left out.
    """
    begun = context.recording.frame(
        "SELECT s.name AS step, o.start_ns FROM steps s JOIN named_cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "WHERE s.device = ? AND s.counted AND o.name = ? ORDER BY o.start_ns",
        [context.rank.device, annotation],
    )
    starts = {step: of_step["start_ns"].to_numpy(np.int64) for step, of_step in begun.groupby("step")}
    launched_rows = rows[rows["step"].isin(starts) & rows["launch_ns"].notna()]
    nth = [
        int(np.searchsorted(starts[step], at, side="right")) - 1
        for step, at in zip(launched_rows["step"], launched_rows["launch_ns"], strict=True)
    ]
    numbered = launched_rows.assign(nth=np.array(nth, np.int64), passes=[len(starts[step]) for step in launched_rows["step"]])
    return numbered[numbered["nth"] >= 0]


def calls_inside(context: RuleContext, *names: str) -> pd.DataFrame:
    """Return the runtime calls of the counted steps inside operators with one of the name prefixes.

    ``names`` are the prefixes; annotations count as operators. Columns: call_id, step as in ``collectives``, and the
    operator's start (launch_ns) and end (end_ns).
    """
    return context.recording.frame(
        "SELECT c.call_id, s.name AS step, min(o.start_ns) AS launch_ns, max(o.start_ns + o.dur_ns) AS end_ns FROM steps s "
        "JOIN cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "JOIN runtime_calls c ON c.thread_id = o.thread_id AND c.start_ns >= o.start_ns AND c.start_ns < o.start_ns + o.dur_ns "
        "WHERE s.device = ? AND s.counted AND o.name_id IN (SELECT name_id FROM names, unnest(?) AS begin(text) WHERE starts_with(name, text)) "
        "GROUP BY c.call_id, s.name ORDER BY c.call_id",
        [context.rank.device, list(names)],
    )


def evidence_of(rows: pd.DataFrame) -> list[dict[str, object]]:
    """Return the longest of ``rows`` as evidence that links to the timeline."""
    return [
        {
            "collective": str(row["name"]),
            "bytes": None if pd.isna(row["bytes"]) else int(row["bytes"]),
            "start_ns": int(row["start_ns"]),
            "end_ns": int(row["start_ns"] + row["dur_ns"]),
        }
        for row in rows.nlargest(5, "dur_ns").to_dict("records")
    ]
