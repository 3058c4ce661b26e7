"""Tests of limits that every prediction on every recording must respect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time_evidence import FLOOR_MARGIN
from sawtooth.analysis.replay.edits import Edit, apply
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.findings_of import NAMES, library, result_of

REPLAYS_WITHIN = 0.03  # Allowed difference between a replay and the recording of its work.


def work_left_ms(rank: RankResult, whatif: WhatIf, edits: tuple[Edit, ...]) -> float:
    """Return the least time per step that the GPU works after ``edits``.

    That is its recorded busy time less all the time that the edits remove from operations.
    """
    busy_ns = sum(row.ns for row in rank.ledger if row.owner != "idle") / len(rank.counted)
    saved_ns = 0
    for problem, sign in ((whatif.problem, 1), (apply(whatif.problem, edits), -1)):
        saved_ns += sign * int(problem.ops.dur[np.isin(problem.ops.step, whatif.counted)].sum())
    return (busy_ns - saved_ns / len(rank.counted)) / 1e6


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", NAMES)
def test_no_prediction_is_shorter_than_the_remaining_gpu_work(name: str) -> None:
    result = result_of(name)
    rank = result.lead
    assert rank is not None and rank.best.ms is not None
    with library().open(rank.recording_id) as recording:
        whatif = whatif_of(recording, rank)
    changes = [f.edits for f in result.findings if f.edits]
    changes.append(tuple(dict.fromkeys(edit for edits in changes for edit in edits)))
    busy_ms = work_left_ms(rank, whatif, ()) if whatif is not None else 0.0
    for factor in (0.3, 1.0, 3.0) if whatif is not None else ():
        # The stopwatch's step may be shorter or longer than the replayed one. If it is shorter than the GPU's work, the work
        # fills the step.
        watch_ms = rank.best.ms * factor
        best = replace(rank.best, source="user", reading=Reading(watch_ms))
        for edits in changes:
            predicted = whatif.predict_ms(best, edits)
            least = work_left_ms(rank, whatif, edits) * min(1.0, watch_ms / busy_ms)
            assert predicted is not None and predicted >= least * (1 - REPLAYS_WITHIN), (edits[:1], watch_ms, predicted, least)
    for finding in result.findings:
        if finding.edits and finding.predicted_step_ms is not None and whatif is not None:
            least = work_left_ms(rank, whatif, finding.edits) * min(1.0, rank.best.ms / busy_ms)
            assert finding.predicted_step_ms >= least * (1 - REPLAYS_WITHIN), finding.title
            assert finding.predicted_step_ms == whatif.predict_ms(rank.best, finding.edits), "one change, one prediction"
            assert finding.predicted_low_ms is not None and finding.predicted_high_ms is not None
            assert finding.predicted_low_ms >= FLOOR_MARGIN * whatif.least_ms(rank.best, finding.edits)
        sure = finding.confidence == "high" and finding.predicted_step_ms is not None
        assert not sure or finding.predicted_low_ms is not None, "without an interval nothing is highly confident"
    of_rule = {finding.rule: finding.edits for finding in result.findings}
    made: tuple[Edit, ...] = ()
    for step in result.plan:
        made = (*made, *of_rule[step.rule])
        compiled = any(
            "cuda_graph" in f.explains.topics or "compile" in f.explains.sets for f in result.findings if f.rule == step.rule
        )
        if compiled or whatif is None:
            break  # This rule makes the edits of several findings.
        assert step.predicted_low_ms >= FLOOR_MARGIN * whatif.least_ms(rank.best, made)
        first = next(f for f in result.findings if f.rule == step.rule)
        assert len(made) > len(first.edits) or step.predicted_step_ms == first.predicted_step_ms
