"""A chain of runs in which each run adds one change.

It contains the audit of all runs, and the predicted and measured gain of each change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.run.audit import AuditRow, audit
from sawtooth.analysis.run.model import RunResult

OTHER_UNIT = "This run counts its work in another unit."


@dataclass(frozen=True)
class ChainLine:
    """One line of the audit, with its reading for every run of the chain in order."""

    row: AuditRow
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class ChainChange:
    """The change from one run of the chain to the next.

    ``fixed`` are the rules whose findings the later run no longer has. ``before_ms`` and ``after_ms`` are the measured step
    times in ms, None if not known. ``predicted_ms`` is the predicted step time for these fixes together, or else for the fix
    with the largest gain. If the batch size changed, ``predicted_ms`` is the prediction for the new size. It is None if
    nothing was predicted, or if the later run does not use the advised number (for example of loader workers).

    All times are for the work in one step of the earlier run. ``work`` is the work in a step of the later run divided by
    the work in a step of the earlier run. ``verdict`` is the answer of the comparison.
    """

    fixed: tuple[str, ...]
    predicted_ms: float | None
    before_ms: float | None
    after_ms: float | None
    verdict: Answer
    work: float = 1.0

    @property
    def predicted_gain_ms(self) -> float | None:
        """Predicted gain per step, ms; None if it is not known."""
        return self.before_ms - self.predicted_ms if self.before_ms is not None and self.predicted_ms is not None else None

    @property
    def measured_gain_ms(self) -> float | None:
        """Measured gain per step, ms; None if it is not known."""
        return self.before_ms - self.after_ms if self.before_ms is not None and self.after_ms is not None else None


@dataclass(frozen=True)
class RunChain:
    """A chain of runs; ``changes`` has one entry fewer than ``runs``."""

    runs: tuple[RunResult, ...]
    lines: tuple[ChainLine, ...]
    changes: tuple[ChainChange, ...]

    @property
    def speedup(self) -> float | None:
        """How many times as fast the last run does the work of the first run.

        None if a step time is not known.
        """
        ratios = [change.before_ms / change.after_ms for change in self.changes if change.before_ms and change.after_ms]
        return math.prod(ratios) if len(ratios) == len(self.changes) else None


def chain(sides: Sequence[Side], at_batch: Callable[[RunResult, float], float | None] = lambda run, times: None) -> RunChain:
    """Return the chain of sides with one run each, in the order of ``sides``.

    ``at_batch`` predicts the step time of a run (ms) if its batch is multiplied by a number. It returns None if it cannot
    predict.
    """
    runs = tuple(side.first for side in sides)
    rows = [{(row.key, row.unit): row for row in audit(run)} for run in runs]
    rows_by_key = {key: row for of_run in reversed(rows) for key, row in of_run.items()}
    ordered = (
        [key for key in rows[0] if key in rows_by_key] + [key for key in rows_by_key if key not in rows[0]] if rows else []
    )
    lines = tuple(
        ChainLine(rows_by_key[key], tuple(of_run[key].reading if key in of_run else missing(OTHER_UNIT) for of_run in rows))
        for key in ordered
    )
    return RunChain(runs, lines, tuple(_change(a, b, at_batch) for a, b in pairwise(sides)))


def _change(a: Side, b: Side, at_batch: Callable[[RunResult, float], float | None]) -> ChainChange:
    comparison = compare(a, b)
    throughput = comparison.throughput
    before_ms, after_ms = comparison.best.a, comparison.best.b
    work = throughput.b * after_ms / (throughput.a * before_ms) if throughput is not None and before_ms and after_ms else 1.0
    fixed = [finding for finding in comparison.findings_fixed if finding.severity != "info"]
    single_ms = [
        finding.predicted_step_ms for finding in fixed if finding.claims == "gain" and finding.predicted_step_ms is not None
    ]
    # Without a prediction for these fixes together, take the fix with the largest predicted gain. Often the fixes are several
    # ways to make one change.
    prediction = comparison.prediction
    predicted_ms = min(single_ms, default=None)
    if prediction is not None:
        predicted_ms = prediction.predicted_ms if prediction.tried is None else None
    if throughput is not None:
        larger_ms = at_batch(a.first, work)
        predicted_ms = larger_ms / work if larger_ms is not None else None
    return ChainChange(
        fixed=tuple(dict.fromkeys(finding.rule for finding in fixed)),
        predicted_ms=predicted_ms,
        before_ms=before_ms,
        after_ms=after_ms / work if after_ms is not None else None,
        verdict=comparison.answer,
        work=work,
    )
