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

# What a rank's exposed collectives serve: a parallelism of the rank's groups, or what the step's annotations name.
Purpose = Parallelism | Literal["ddp", "fsdp", "optimizer"]
FSDP = r"^(FullyShardedDataParallel\.|FSDP::)"
DDP = r"^DistributedDataParallel\."
SENDS = r"^(c10d::(send|recv_)$|nccl:(send|recv)|PP:)"
LARGE_BYTES = 1_000_000  # Latency, not the link, limits smaller collectives.


def collectives(context: RuleContext) -> pd.DataFrame:
    """Return the communication kernels of the counted steps in order of start.

    The columns are those of ``ranks.collectives.load``. Callers must not change the frame, because all rules share it.
    """
    return context.once(_collectives)


def _collectives(context: RuleContext) -> pd.DataFrame:
    rows, _ = load(context.recording, context.rank.device, context.rank.steps)
    return rows[rows["counted"]].reset_index(drop=True)


def overlap_delay_share(context: RuleContext, rows: pd.DataFrame) -> pd.Series:
    """Return each collective's delay of overlapping kernels, as a share of its duration.

    Each block of a collective occupies one multiprocessor. The share is 0 if the number of multiprocessors is not known.
    """
    multiprocessors = context.rank.gpu.sms if context.rank.gpu is not None else None
    if not multiprocessors:
        return pd.Series(0.0, index=rows.index)
    blocks = rows["blocks"].astype("Float64").fillna(0.0).astype(float)
    return (blocks / multiprocessors).clip(upper=1.0)


def purpose_of(context: RuleContext) -> Purpose | None:
    """Return the purpose of most of the exposed communication in the counted steps, None if unknown.

    Communication that an optimizer launches serves the optimizer, such as the gathers of a sharded optimizer.
    """
    rows = collectives(context)
    rows = rows[rows["exposed_ns"] > 0]
    total_ns = float(rows["exposed_ns"].sum())
    if not total_ns:
        return None
    is_optimizer = rows["gpu_op_id"].isin(launched_by_optimizer(context.recording, context.rank.device))
    if float(rows.loc[is_optimizer, "exposed_ns"].sum()) > total_ns / 2:
        return "optimizer"
    keyed = rows.assign(key=pd.factorize(rows["group"])[0] * 2 + (rows["name"] == SEND_RECEIVE), shortest_ns=rows["dur_ns"])
    purposes = keyed["key"].map(parallelisms(keyed))
    if not context.recording.named(SENDS):  # Older NCCL also names the kernels of an all-to-all SendRecv.
        purposes = purposes.where((keyed["name"] != SEND_RECEIVE) | (purposes != "pp"), None)
    exposed_ns = keyed.groupby(purposes, dropna=True)["exposed_ns"].sum()
    purpose = None if exposed_ns.empty else cast(Parallelism, exposed_ns.idxmax())
    if purpose != "dp":
        return purpose
    return "fsdp" if context.recording.named(FSDP) else "ddp" if context.recording.named(DDP) else "dp"


def overlap_limit_ms(context: RuleContext) -> float:
    """Return the ms per step that overlap can hide at most: computation without communication."""
    rows = collectives(context)
    overlapped_ms = float((rows["dur_ns"] - rows["exposed_ns"]).sum()) / 1e6 / max(len(context.rank.counted), 1)
    computing_owners = {owner.key for owner in OWNERS if owner.computes}
    computation_ms = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.owner in computing_owners)
    return max(computation_ms - overlapped_ms, 0.0)


def bus_gb_s(context: RuleContext) -> float | None:
    """Return the bus bandwidth in GB/s of the quickest large collective, None if no size is recorded.

    Slower collectives may have waited for a late rank.
    """
    rows = collectives(context)
    is_large = rows["bytes"].fillna(0) >= LARGE_BYTES
    large = rows[is_large & rows["name"].isin(BUS_FACTORS) & (rows["group_size"].fillna(0) > 1) & (rows["dur_ns"] > 0)]
    rates = [
        row["bytes"] * BUS_FACTORS[row["name"]](int(row["group_size"])) / row["dur_ns"] for row in large.to_dict("records")
    ]
    return max(rates, default=None)


def with_pass_numbers(context: RuleContext, rows: pd.DataFrame, annotation: str) -> pd.DataFrame:
    """Return ``rows`` of ``collectives`` with the number of the pass that launched them.

    A pass begins with ``annotation``. The column passes counts the passes of the step, and nth is the pass that launched the row,
    from 0. The result has no rows launched before the first pass.
    """
    begins = context.recording.frame(
        "SELECT s.name AS step, o.start_ns FROM steps s JOIN named_cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "WHERE s.device = ? AND s.counted AND o.name = ? ORDER BY o.start_ns",
        [context.rank.device, annotation],
    )
    starts = {step: step_begins["start_ns"].to_numpy(np.int64) for step, step_begins in begins.groupby("step")}
    launched_rows = rows[rows["step"].isin(starts) & rows["launch_ns"].notna()]
    nth = [
        int(np.searchsorted(starts[step], launch_ns, side="right")) - 1
        for step, launch_ns in zip(launched_rows["step"], launched_rows["launch_ns"], strict=True)
    ]
    numbered = launched_rows.assign(nth=np.array(nth, np.int64), passes=[len(starts[step]) for step in launched_rows["step"]])
    return numbered[numbered["nth"] >= 0]


def calls_inside(context: RuleContext, *prefixes: str) -> pd.DataFrame:
    """Return the runtime calls of the counted steps inside operators with one of the name prefixes.

    Annotations count as operators. The columns are call_id, step as in ``collectives``, and the operator's start (launch_ns) and
    end (end_ns).
    """
    return context.recording.frame(
        "SELECT c.call_id, s.name AS step, min(o.start_ns) AS launch_ns, max(o.start_ns + o.dur_ns) AS end_ns FROM steps s "
        "JOIN cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "JOIN runtime_calls c ON c.thread_id = o.thread_id AND c.start_ns >= o.start_ns AND c.start_ns < o.start_ns + o.dur_ns "
        "WHERE s.device = ? AND s.counted AND o.name_id IN (SELECT name_id FROM names, unnest(?) AS begin(text) WHERE starts_with(name, text)) "
        "GROUP BY c.call_id, s.name ORDER BY c.call_id",
        [context.rank.device, list(prefixes)],
    )


def collective_evidence(rows: pd.DataFrame) -> list[dict[str, object]]:
    """Return the five longest of ``rows`` as evidence that links to the timeline."""
    return [
        {
            "collective": str(row["name"]),
            "bytes": None if pd.isna(row["bytes"]) else int(row["bytes"]),
            "start_ns": int(row["start_ns"]),
            "end_ns": int(row["start_ns"] + row["dur_ns"]),
        }
        for row in rows.nlargest(5, "dur_ns").to_dict("records")
    ]
