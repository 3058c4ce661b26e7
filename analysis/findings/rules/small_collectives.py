"""The step has many small collectives.

What it checks
    The mean size of a step's collectives, if communication is exposed. Also gradients that are all-reduced during the
    backward pass in much smaller buckets than DistributedDataParallel's, with a host call for each.
Why it costs time
    A collective takes tens of microseconds, even if it is small; below about 1 MB this is most of its time. Each also costs a
    host call, which matters if the host is the limit.
What to do
    Use larger buckets (bucket_cap_mb), flattened parameters, and one all-reduce for all metrics. Broadcasts of single parameters
    come from ZeroRedundancyOptimizer: let it keep parameters in buckets (parameters_as_bucket_view).
When it is wrong
    The run uses tensor parallelism, which needs its small collectives.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.communication import calls_inside, collectives, evidence_of
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number, in_words

# Below about 1 MB, latency limits a collective, not bandwidth. This is true on NVLink and on the network.
SMALL_BYTES = 1_000_000
MANY = 20  # Small collectives per step. A few are metrics and flags.
BUCKET_BYTES = 25 * 1024 * 1024  # DistributedDataParallel uses buckets of this size by default.
# Most buckets must be this many times smaller. Two buckets of half the size are a setting, not single gradients. A gradient
# that is larger than a bucket is sent alone.
FAR_SMALLER = 8
CALLED = "c10d::allreduce_"  # The host operator of one all-reduce has this name.
CHANGE = Action("Put", "gradients together", ": a larger bucket_cap_mb, or one flat tensor for small values.")
RISK = "Larger buckets start later and overlap less."
# After its step, each rank of ZeroRedundancyOptimizer broadcasts the parameters that it updates, one by one unless they are in buckets.
SEND_PARAMETERS = Action(
    "Send",
    "parameters together",
    ": ZeroRedundancyOptimizer with parameters_as_bucket_view=True sends those of a rank in one broadcast.",
)

CHANGES = (
    CodeChange("PyTorch", "DDP(model, bucket_cap_mb=1)", "DDP(model, bucket_cap_mb=25)"),
    CodeChange("Transformers", "TrainingArguments(ddp_bucket_cap_mb=1)", "TrainingArguments(ddp_bucket_cap_mb=25)"),
)
IN_BUCKETS = (
    CodeChange(
        "PyTorch",
        "opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-4)",
        "opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-4, parameters_as_bucket_view=True)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if many small collectives are exposed, or if each costs the host a call."""
    yield from list(_exposed_evidence(context)) or _called_one_by_one(context)


def _exposed_evidence(context: RuleContext) -> Iterator[Evidence]:
    lost = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.owner == "exposed_comm")
    if context.share(lost) < FEW_LINES.share:
        return  # The host's calls may still cost time, which ``_called_one_by_one`` checks.
    every = collectives(context)
    rows = every[every["bytes"].notna()].astype({"bytes": float})
    small, large = rows[rows["bytes"] < SMALL_BYTES], rows[(rows["bytes"] >= SMALL_BYTES) & (rows["dur_ns"] > 0)]
    steps = max(len(context.rank.counted), 1)
    count = len(small) / steps
    if count < MANY:
        return
    edits: list[Edit] = []
    if len(large):
        fast = small["bytes"] / (large["bytes"] / large["dur_ns"]).max()
        edits = [TimedOps(tuple(small["gpu_op_id"].astype(int).tolist()), tuple(fast.astype(int).tolist()))]
    of_parameters = 2 * int((small["name"] == "broadcast").sum()) > len(small)
    yield Evidence(
        Advice(
            f"{in_number(count, 'collective per step moves', 'collectives per step move')} less than 1 MB each, while {in_words(lost)} of communication is exposed",
            SEND_PARAMETERS if of_parameters else CHANGE,
            note="Predicted by the replay with these bytes moved at the rate of the largest collectives."
            if edits
            else "Not predicted: the time of a larger collective is not in the trace.",
            risk="" if of_parameters else RISK,
            changes=IN_BUCKETS if of_parameters else CHANGES,
        ),
        lost_ms=min(lost, float(small["dur_ns"].sum()) / 1e6 / steps),
        cost_ms=lost,
        edits=edits,
        rows=evidence_of(small),
    )


def _called_one_by_one(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the step is shorter with the all-reduces joined into default-size buckets.

    Only all-reduces of gradients during the backward pass count.
    """
    every = collectives(context)
    within = (every["name"] == "allreduce") & every["bytes"].notna() & every["launch_ns"].notna()
    within &= ~every["after_backward"].fillna(True).astype(bool) & ~every["forward"].fillna(True).astype(bool)
    rows = every[within].sort_values("launch_ns")
    bucket = (rows.groupby(["step", "group"])["bytes"].cumsum() // BUCKET_BYTES).rename("bucket")
    replaced = rows[rows.assign(bucket=bucket).duplicated(["step", "group", "bucket"], keep="last")]
    steps = max(len(context.rank.counted), 1)
    if len(replaced) < MANY * steps or context.step_ms is None:
        return
    usual = float(rows["bytes"].astype(float).median())
    if usual > BUCKET_BYTES / FAR_SMALLER:
        return
    edits = _together(context, rows, bucket, replaced)
    predicted = context.predict_ms(edits)
    if predicted is None or context.is_trifle(context.step_ms - predicted):
        return
    count = len(rows) / steps
    yield Evidence(
        Advice(
            f"Gradients are sent in {in_number(count, 'all-reduce', 'all-reduces')} per step, most of {usual / 1e6:.2g} MB or less, and the host makes a call for each",
            CHANGE,
            note="Predicted by the replay with these gradients in buckets of 25 MB. Each bucket is sent with its last gradient, in one host call.",
            risk=RISK,
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted,
        edits=edits,
        rows=evidence_of(replaced),
        threshold_for="gain",
    )


def _together(context: RuleContext, rows: pd.DataFrame, bucket: pd.Series, replaced: pd.DataFrame) -> list[Edit]:
    """Return the edits that keep only the last all-reduce of each bucket.

    It moves all bytes of the bucket at the rate of the fastest all-reduce. The host calls of the others disappear.
    """
    bytes_, dur_ns = rows["bytes"].astype(float), rows["dur_ns"].astype(float)
    rate = float((bytes_ / dur_ns).max())
    of_bucket = [rows["step"], rows["group"], bucket]
    needs = pd.concat(
        [bytes_.groupby(of_bucket).transform("sum") / rate, dur_ns.groupby(of_bucket).transform("sum")], axis=1
    ).min(axis=1)
    remaining = rows.drop(replaced.index)
    calls, launched = calls_inside(context, CALLED), np.sort(replaced["launch_ns"].to_numpy(np.int64))
    first = np.searchsorted(launched, calls["launch_ns"].to_numpy(np.int64), side="left")
    last = np.searchsorted(launched, calls["end_ns"].to_numpy(np.int64), side="right")
    return [
        TimedOps(tuple(remaining["gpu_op_id"].astype(int).tolist()), tuple(needs[remaining.index].astype(int).tolist())),
        WithoutOps(tuple(replaced["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[first < last, "call_id"].astype(int).tolist())),
    ]


RULE = Rule(
    "small-collectives",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    threshold=FEW_LINES,
    part_of="exposed-communication",
)
