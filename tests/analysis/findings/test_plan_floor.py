"""Tests of the plan's lower bound: the time that its changes cannot reduce.

That is Python's computing, the loader's best rate and the GPU's own work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.replay.edits import BETWEEN_CALLS_NS, AsGraph, Edit, FasterHost, WithoutCalls, WithoutHostCause
from sawtooth.analysis.replay.whatif import WhatIf
from tests.support.findings_of import NAMES, context_of, result_of
from tests.support.paths import RECORDED_AFTER

FEW = ("mlp_eager", "adam_single", "python_host", "resnet_starved", "gpt_reads", "reduced_after", "copy_pinned")
OTHERS = sorted(
    {*NAMES, *(folder.name for folder in RECORDED_AFTER.iterdir() if any(folder.glob("*trace.json.gz")))} - set(FEW)
)


def python_ms(whatif: WhatIf, edits: Sequence[Edit]) -> float:
    """Return the main thread's Python longer than a call between operators, in ms per step.

    Return 0 if ``edits`` change it.
    """
    if any(isinstance(edit, WithoutCalls | FasterHost) or getattr(edit, "cause", "") == "python_host" for edit in edits):
        return 0.0
    host, counted = whatif.problem.host, set(whatif.counted.tolist())
    steps = np.full(len(host), -1)
    ops = whatif.problem.ops
    steps[ops.node[ops.node >= 0]] = ops.step[ops.node >= 0]
    own_rank = np.isin(steps, list(counted)) & host.is_slowed & (host.pred >= 0)
    longer = np.maximum(host.gap_parts[own_rank, HOST_CAUSES.index("python_host")] - BETWEEN_CALLS_NS, 0)
    return float(longer.sum()) / 1e6 / max(len(counted), 1)


def check(name: str) -> None:
    result = result_of(name)
    if not result.plan or result.lead is None:
        return
    by_rule = {finding.rule: finding.edits for finding in result.findings}
    with context_of(name) as context:
        whatif, best, edits = context.whatif, context.rank.best, ()
        assert whatif is not None and best.ms is not None
        for step in result.plan:
            if step.prepares:
                continue
            edits = tuple(dict.fromkeys((*edits, *by_rule[step.rule])))
            floors = {"the GPU's work": whatif.least_ms(best, edits)}
            if best.ms <= (whatif.step_ms() or 0.0) * 1.01 and any(isinstance(edit, AsGraph) for edit in edits):
                floors["Python"] = python_ms(whatif, edits) * min(1.0, best.ms / (whatif.step_ms() or best.ms))
            if best.feeding is not None and not any(isinstance(e, WithoutHostCause) and e.cause == "data_wait" for e in edits):
                floors["the loader"] = best.feeding.floors_ms(best.ms).likely
            below = {what: ms for what, ms in floors.items() if step.predicted_step_ms < 0.999 * ms}
            assert not below, f"{name}, {step.rule}: {step.predicted_step_ms} ms is below {below}"


@pytest.mark.parametrize("name", FEW)
def test_a_plan_is_not_shorter_than_its_unchanged_work(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_plan_is_not_shorter_than_its_unchanged_work(name: str) -> None:
    check(name)
