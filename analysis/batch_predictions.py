"""Predictions for batch sizes that were not measured, from a run's trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sawtooth.analysis.compare.sweep import BATCH, BatchPrediction, Point, Sweep
from sawtooth.analysis.findings.batch.step import PredictedBatch, predict_batches
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library

BATCH_SIZE_FACTORS = (0.25, 0.5, 2.0, 4.0)  # Factors of a run's batch size that a user would probably try next.


def with_predictions(sweep: Sweep, libraries: Mapping[str, Library]) -> Sweep:
    """Return ``sweep`` with predictions for other batch sizes from one run's trace.

    The sweep is unchanged if its setting is not the batch size, or if no trace allows a prediction. The predictions are for
    the first run with tried sizes, or else for the first run whose trace has shapes and a replay. ``libraries`` has the
    library of each run, by run id.
    """
    if sweep.setting != BATCH:
        return sweep
    bases = [point for point in sweep.points if point.is_run and point.number and point.throughput.value]
    for base in sorted(bases, key=lambda point: not point.run.manifest.batches):
        measured = {point.number for point in sweep.points if point.number}
        numbers = (
            {number for times in BATCH_SIZE_FACTORS if (number := base.number * times).is_integer()} if base.number else set()
        )
        sizes = sorted((measured | numbers) - {base.number})
        if predicted := _predictions(base, sizes, libraries[base.run.manifest.id]):
            return replace(sweep, predicted=predicted)
    return sweep


def at_batch(run: RunResult, times: float, library: Library) -> PredictedBatch | None:
    """Return the prediction for a batch ``times`` as large as the batch of ``run``.

    None if its trace does not allow one.
    """
    lead = run.lead
    if lead is None:
        return None
    with open_rank(library, lead) as view:
        context = RuleContext(run, lead, view.recording, whatif=whatif_of(view.recording, lead))
        batches = predict_batches(context, [times])
    return batches[0] if batches else None


def step_at_batch(run: RunResult, times: float, library: Library) -> float | None:
    """Return the step time in ms for a batch ``times`` as large as the batch of ``run``.

    None without a prediction.
    """
    batch = at_batch(run, times, library)
    return batch.step_ms if batch is not None else None


def _predictions(base: Point, sizes: Sequence[float], library: Library) -> tuple[BatchPrediction, ...]:
    lead, rate, base_number = base.run.lead, base.throughput.value, base.number
    if lead is None or not rate or not base_number:
        return ()
    with open_rank(library, lead) as view:
        context = RuleContext(base.run, lead, view.recording, whatif=whatif_of(view.recording, lead))
        batches = predict_batches(context, [size / base_number for size in sizes])
    return (
        tuple(
            BatchPrediction(
                size,
                base_number,
                rate * at.rate,
                rate * at.rate * at.step_ms / at.high_ms,
                rate * at.rate * at.step_ms / max(at.low_ms, 1e-6),
                at.step_ms,
                at.memory_bytes,
                at.host_limits,
            )
            for size, at in zip(sizes, batches, strict=True)
        )
        if batches
        else ()
    )
