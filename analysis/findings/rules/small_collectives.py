"""The step has many small collectives.

What it checks
    Small collectives in a step with exposed communication. Also all-reduces of gradients during the backward pass, in buckets
    that are much smaller than DistributedDataParallel's default.
Why it costs time
    A collective takes tens of microseconds, even if it is small. Below about 1 MB, this latency is most of the collective's time.
    Each collective also costs a host call.
What to do
    Use larger buckets (bucket_cap_mb), flattened parameters, and one all-reduce for all metrics. ZeroRedundancyOptimizer
    broadcasts single parameters unless you let it keep parameters in buckets (parameters_as_bucket_view).
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
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.communication import calls_inside, collective_evidence, collectives
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number, in_words

SMALL_BYTES = 1_000_000  # The time of a smaller collective depends on latency, not on bandwidth. This is true on NVLink and on the network.
MIN_COLLECTIVES = 20  # Small collectives per step. Fewer may be only metrics and flags.
BUCKET_BYTES = 25 * 1024 * 1024  # DistributedDataParallel uses buckets of this size by default.
MIN_BUCKET_RATIO = 8  # Default bucket size ÷ median size. With a smaller ratio, a user probably set the bucket size.
ALL_REDUCE_OPERATOR = "c10d::allreduce_"
JOIN_GRADIENTS = Action("Combine", "gradients", ": use a larger bucket_cap_mb, or one flat tensor for small values.")
LARGE_BUCKETS_RISK = "Larger buckets start later and overlap less."
# After a step of ZeroRedundancyOptimizer, each rank broadcasts the parameters that it updated, one by one unless they are in buckets.
SEND_PARAMETERS = Action(
    "Send",
    "parameters together",
    ": ZeroRedundancyOptimizer with parameters_as_bucket_view=True sends a rank's parameters in one broadcast.",
)

CHANGES = (
    CodeChange("PyTorch", "DDP(model, bucket_cap_mb=1)", "DDP(model, bucket_cap_mb=25)"),
    CodeChange("Transformers", "TrainingArguments(ddp_bucket_cap_mb=1)", "TrainingArguments(ddp_bucket_cap_mb=25)"),
)
BUCKET_CHANGES = (
    CodeChange(
        "PyTorch",
        "opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-4)",
        "opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-4, parameters_as_bucket_view=True)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if many small collectives are exposed, or else if joining them saves host calls."""
    yield from list(_evidence_of_exposed_collectives(context)) or _evidence_of_host_calls(context)


def _evidence_of_exposed_collectives(context: RuleContext) -> Iterator[Evidence]:
    """Yield the evidence that many small collectives run while no kernel computes."""
    lost_ms = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.owner == "exposed_comm")
    if context.share(lost_ms) < FEW_LINES_TO_CHANGE.share:
        return
    all_collectives = collectives(context)
    sized = all_collectives[all_collectives["bytes"].notna()].astype({"bytes": float})
    is_small = sized["bytes"] < SMALL_BYTES
    small, large = sized[is_small], sized[~is_small & (sized["dur_ns"] > 0)]
    steps = max(len(context.rank.counted), 1)
    count = len(small) / steps
    if count < MIN_COLLECTIVES:
        return
    edits: list[Edit] = []
    if len(large):
        max_bytes_per_ns = (large["bytes"] / large["dur_ns"]).max()
        small_ns = small["bytes"] / max_bytes_per_ns
        edits = [TimedOps(tuple(small["gpu_op_id"].astype(int).tolist()), tuple(small_ns.astype(int).tolist()))]
    are_broadcasts = 2 * int((small["name"] == "broadcast").sum()) > len(small)
    yield Evidence(
        Advice(
            f"{in_number(count, 'collective per step moves', 'collectives per step move')} less than 1 MB each, while {in_words(lost_ms)} of communication is exposed",
            SEND_PARAMETERS if are_broadcasts else JOIN_GRADIENTS,
            note="Predicted by the replay with these bytes moved at the rate of the largest collectives."
            if edits
            else "Not predicted: the time of a larger collective is not in the trace.",
            risk="" if are_broadcasts else LARGE_BUCKETS_RISK,
            changes=BUCKET_CHANGES if are_broadcasts else CHANGES,
        ),
        lost_ms=min(lost_ms, float(small["dur_ns"].sum()) / 1e6 / steps),
        cost_ms=lost_ms,
        edits=edits,
        rows=collective_evidence(small),
    )


def _evidence_of_host_calls(context: RuleContext) -> Iterator[Evidence]:
    """Yield the evidence that joining the gradients' all-reduces into larger buckets shortens the step."""
    gradient_allreduces = _gradient_allreduces(collectives(context))
    bucket = (gradient_allreduces.groupby(["step", "group"])["bytes"].cumsum() // BUCKET_BYTES).rename("bucket")
    is_replaced = gradient_allreduces.assign(bucket=bucket).duplicated(["step", "group", "bucket"], keep="last")
    replaced = gradient_allreduces[is_replaced]
    steps = max(len(context.rank.counted), 1)
    if len(replaced) < MIN_COLLECTIVES * steps or context.step_ms is None:
        return
    median_bytes = float(gradient_allreduces["bytes"].astype(float).median())
    if median_bytes > BUCKET_BYTES / MIN_BUCKET_RATIO:
        return
    edits = _joining_edits(context, gradient_allreduces, bucket, replaced)
    predicted_ms = context.predict_ms(edits)
    if predicted_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    count = len(gradient_allreduces) / steps
    yield Evidence(
        Advice(
            f"Gradients are sent in {in_number(count, 'all-reduce', 'all-reduces')} per step, most of {median_bytes / 1e6:.2g} MB or less, and the host makes a call for each",
            JOIN_GRADIENTS,
            note="Predicted by the replay with these gradients in buckets of 25 MB. Each bucket is sent with its last gradient, in one host call.",
            risk=LARGE_BUCKETS_RISK,
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted_ms,
        edits=edits,
        rows=collective_evidence(replaced),
        threshold_for="gain",
    )


def _gradient_allreduces(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the all-reduces that were launched during a backward pass, in the order of their launches."""
    sized = rows[(rows["name"] == "allreduce") & rows["bytes"].notna() & rows["launch_ns"].notna()]
    after_backward, in_forward = (sized[column].fillna(True).astype(bool) for column in ("after_backward", "forward"))
    return sized[~after_backward & ~in_forward].sort_values("launch_ns")


def _joining_edits(context: RuleContext, rows: pd.DataFrame, bucket: pd.Series, replaced: pd.DataFrame) -> list[Edit]:
    """Return the edits that keep only the last all-reduce of each bucket.

    The host calls of the others disappear. The last all-reduce moves all bytes of the bucket at the rate of the fastest all-reduce.
    """
    sizes, dur_ns = rows["bytes"].astype(float), rows["dur_ns"].astype(float)
    max_bytes_per_ns = float((sizes / dur_ns).max())
    bucket_keys = [rows["step"], rows["group"], bucket]
    at_max_rate_ns = sizes.groupby(bucket_keys).transform("sum") / max_bytes_per_ns
    recorded_ns = dur_ns.groupby(bucket_keys).transform("sum")
    bucket_ns = pd.concat([at_max_rate_ns, recorded_ns], axis=1).min(axis=1)
    remaining = rows.drop(replaced.index)
    calls = calls_inside(context, ALL_REDUCE_OPERATOR)
    replaced_launch_ns = np.sort(replaced["launch_ns"].to_numpy(np.int64))
    first = np.searchsorted(replaced_launch_ns, calls["launch_ns"].to_numpy(np.int64), side="left")
    last = np.searchsorted(replaced_launch_ns, calls["end_ns"].to_numpy(np.int64), side="right")
    has_replaced_launch = first < last
    return [
        TimedOps(tuple(remaining["gpu_op_id"].astype(int).tolist()), tuple(bucket_ns[remaining.index].astype(int).tolist())),
        WithoutOps(tuple(replaced["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[has_replaced_launch, "call_id"].astype(int).tolist())),
    ]


RULE = Rule(
    "small-collectives",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
    part_of="exposed-communication",
)
