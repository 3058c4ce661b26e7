"""Collectives of the lead device, as several rules read them: which pass of a step each belongs to, and what the host calls for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.collectives import load

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext


def collectives(context: RuleContext) -> pd.DataFrame:
    """Return the communication kernels of the counted steps in order of start: the columns of ``ranks.collectives.load``. Not to be changed."""
    return context.once(_collectives)


def _collectives(context: RuleContext) -> pd.DataFrame:
    rows, _ = load(context.recording, context.rank.device, context.rank.steps)
    return rows[rows["counted"]].reset_index(drop=True)


def cost_beside(context: RuleContext, rows: pd.DataFrame) -> pd.Series:
    """Return the share of their time that collectives cost the kernels they run beside: a block of theirs holds a multiprocessor. 0 where that is not known."""
    sms = context.rank.gpu.sms if context.rank.gpu is not None else None
    if not sms:
        return pd.Series(0.0, index=rows.index)
    return (rows["blocks"].astype("Float64").fillna(0.0).astype(float) / sms).clip(upper=1.0)


def by_pass(context: RuleContext, rows: pd.DataFrame, annotation: str) -> pd.DataFrame:
    """Return ``rows`` of ``collectives`` with ``passes``, how often ``annotation`` begins in their step, and ``nth``, after which of them they were
    launched, from 0. Those launched before the first are left out."""
    begun = context.recording.frame(
        "SELECT s.name AS step, o.start_ns FROM steps s JOIN named_cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "WHERE s.device = ? AND s.counted AND o.name = ? ORDER BY o.start_ns",
        [context.rank.device, annotation],
    )
    starts = {step: mine["start_ns"].to_numpy(np.int64) for step, mine in begun.groupby("step")}
    known = rows[rows["step"].isin(starts) & rows["launch_ns"].notna()]
    nth = [
        int(np.searchsorted(starts[step], at, side="right")) - 1
        for step, at in zip(known["step"], known["launch_ns"], strict=True)
    ]
    placed = known.assign(nth=np.array(nth, np.int64), passes=[len(starts[step]) for step in known["step"]])
    return placed[placed["nth"] >= 0]


def calls_inside(context: RuleContext, *names: str) -> pd.DataFrame:
    """Return the runtime calls of the counted steps inside operators and annotations whose names begin with one of ``names``: call_id, step as in
    ``collectives``, launch_ns and end_ns, when that operator began and ended."""
    return context.recording.frame(
        "SELECT c.call_id, s.name AS step, min(o.start_ns) AS launch_ns, max(o.start_ns + o.dur_ns) AS end_ns FROM steps s "
        "JOIN cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        "JOIN runtime_calls c ON c.thread_id = o.thread_id AND c.start_ns >= o.start_ns AND c.start_ns < o.start_ns + o.dur_ns "
        "WHERE s.device = ? AND s.counted AND o.name_id IN (SELECT name_id FROM names, unnest(?) AS begin(text) WHERE starts_with(name, text)) "
        "GROUP BY c.call_id, s.name ORDER BY c.call_id",
        [context.rank.device, list(names)],
    )


def evidence_of(rows: pd.DataFrame, limit: int = 5) -> list[dict[str, object]]:
    """Return the longest of ``rows`` as evidence that links to the timeline."""
    return [
        {
            "collective": str(row["name"]),
            "bytes": None if pd.isna(row["bytes"]) else int(row["bytes"]),
            "start_ns": int(row["start_ns"]),
            "end_ns": int(row["start_ns"] + row["dur_ns"]),
        }
        for row in rows.nlargest(limit, "dur_ns").to_dict("records")
    ]
