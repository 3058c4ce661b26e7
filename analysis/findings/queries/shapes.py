"""Steps of one kind that work on different shapes."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once

UNLIKE = 1.1  # Largest FLOPs of a step ÷ smallest. Sorting batches is not useful for a difference below 10 %.
MIN_STEPS = 2  # Two different steps prove that steps differ.


@once
def unlike_steps(context: RuleContext) -> pd.Series | None:
    """Return the FLOPs of each profiled step if they differ by more than UNLIKE; else None.

    None also if the steps run different operators: they are then steps of several kinds.
    """
    work = context.work
    flops = work.groupby("step")["flops"].sum()
    flops = flops[flops > 0]
    if len(flops) < MIN_STEPS or flops.max() < UNLIKE * flops.min():
        return None
    products = work[work["flop_op_id"].notna()].drop_duplicates("flop_op_id").sort_values(["step", "start_ns"])
    operators_of_step = products.groupby("step")["flop_operator"].agg(tuple)
    return None if operators_of_step.nunique() > 1 else flops  # Steps with other operators are steps of several kinds.
