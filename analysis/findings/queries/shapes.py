"""Whether steps of one kind work on other shapes each."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once

UNLIKE = 1.1  # most FLOPs of a step over fewest: below a tenth no batch is worth sorting
LEAST_STEPS = 2  # two steps that differ prove that steps differ


@once
def unlike_steps(context: RuleContext) -> pd.Series | None:
    """Return the FLOPs of each profiled step where one has more than UNLIKE times another's and all run the same operators; else None."""
    work = context.work
    flops = work.groupby("step")["flops"].sum()
    flops = flops[flops > 0]
    if len(flops) < LEAST_STEPS or flops.max() < UNLIKE * flops.min():
        return None
    products = work[work["flop_op_id"].notna()].drop_duplicates("flop_op_id").sort_values(["step", "start_ns"])
    named = products.groupby("step")["flop_operator"].agg(tuple)
    return None if named.nunique() > 1 else flops  # steps of other operators are steps of several kinds
