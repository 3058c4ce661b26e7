"""Steps of one kind that work on different shapes."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once

MIN_RATIO = 1.1  # Largest FLOPs of a step ÷ smallest. Sorting batches is not useful for a difference below 10 %.
MIN_STEPS = 2  # Two different steps prove that steps differ.


@once
def differing_step_flops(context: RuleContext) -> pd.Series | None:
    """Return the FLOPs of each profiled step if their ratio is at least MIN_RATIO, else None.

    None also if the steps run different operators, because these are steps of several kinds.
    """
    work = context.work
    flops = work.groupby("step")["flops"].sum()
    flops = flops[flops > 0]
    if len(flops) < MIN_STEPS or flops.max() < MIN_RATIO * flops.min():
        return None
    products = work[work["flop_op_id"].notna()].drop_duplicates("flop_op_id").sort_values(["step", "start_ns"])
    operators_of_step = products.groupby("step")["flop_operator"].agg(tuple)
    return None if operators_of_step.nunique() > 1 else flops
