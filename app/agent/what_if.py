"""Predict a run's step after changes of its findings, and after changes that the caller describes.

Changes of findings have the predictions of the pages, because the pages replay the same edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.batch_predictions import at_batch
from sawtooth.analysis.combined_changes import combined_prediction
from sawtooth.analysis.knowledge.causes import HOST_CAUSES, REMOVABLE, WAIT_CAUSES
from sawtooth.analysis.replay.edits import AsGraph, Edit, FasterHost, ScaledOps, WithoutHostCause, WithoutOps, WithoutWaits
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.app import format as fmt
from sawtooth.ingest.errors import NotFoundError, UsageError

MAX_FACTOR = 100.0  # A larger factor is probably a mistake.
MAX_CHANGES = 50  # A request may name at most this many changes, because each takes a replay.
REMOVABLE_CAUSES = tuple(cause for cause in REMOVABLE if cause in (*HOST_CAUSES, *WAIT_CAUSES))


@dataclass(frozen=True)
class LessLostTime:
    """Less lost time of a cause in the report's ``lost``: ``keep_share`` of it remains (0 removes it)."""

    cause: str
    keep_share: float = 0.0


@dataclass(frozen=True)
class KernelTime:
    """Kernels whose name contains ``name`` take ``factor`` × their time: 0.5 halves it, 0 removes them."""

    name: str
    factor: float


@dataclass(frozen=True)
class Changes:
    """Changes to predict together. ``batch_factor`` (2 doubles the batch) can only be predicted alone."""

    findings: Sequence[str] = ()
    lost_time: Sequence[LessLostTime] = ()
    kernels: Sequence[KernelTime] = ()
    host_time_factor: float | None = None
    cuda_graph: bool = False
    batch_factor: float | None = None

    @property
    def has_described(self) -> bool:
        """Whether the caller describes changes that do not come from findings."""
        return bool(self.lost_time or self.kernels or self.host_time_factor is not None or self.cuda_graph)


@dataclass(frozen=True)
class WhatIfPrediction:
    """The step before and after the changes in ms.

    In four of five such predictions, the interval contains the measured step. ``gain_ms`` is before minus after.
    ``not_counted`` are findings that are left out, because a replay cannot show their gain. ``samples_per_second_factor`` is
    the new rate of samples ÷ the old one, for another batch size only.
    """

    before_ms: float
    after_ms: float
    low_ms: float | None
    high_ms: float | None
    gain_ms: float
    speedup: float
    sentence: str
    not_counted: list[str]
    samples_per_second_factor: float | None = None


def predict(result: RunResult, changes: Changes, library: Library) -> WhatIfPrediction:
    """Return the run's step with ``changes``; raises UsageError for none, or if they cannot be replayed."""
    if (check := result.withdrawn_by) is not None:
        raise UsageError(check.sentence)
    lead = result.lead
    if lead is None or lead.best.ms is None:
        raise UsageError("This run has no GPU step to change, because a prediction needs a trace with steps.")
    findings = _findings(result, changes.findings)
    if changes.batch_factor is not None:
        if findings or changes.has_described:
            raise UsageError("Another batch size can only be predicted alone. Ask for the other changes in another call.")
        return _of_batch(result, lead.best.ms, changes.batch_factor, library)
    if not findings and not changes.has_described:
        raise UsageError("Name at least one change: a finding, a cause of lost time, kernels, the host, a graph or a batch.")
    if changes.has_described:
        return _replay(result, lead, findings, changes, library)
    if len(findings) == 1 and findings[0].predicted_step_ms is not None:
        (finding,) = findings
        assert finding.predicted_step_ms is not None
        before_ms, after_ms = finding.predicted_step_ms + finding.gain_ms, finding.predicted_step_ms
        return _make_prediction(before_ms, after_ms, finding.predicted_low_ms, finding.predicted_high_ms, [])
    together = combined_prediction(library, lead, result.gpus, findings) if any(f.edits for f in findings) else None
    if together is None:
        raise UsageError(_no_replay(findings))
    left_out = [finding.rule for finding in findings if not finding.edits]
    return _make_prediction(together.before_ms, together.after_ms, together.low_ms, together.high_ms, left_out)


def _findings(result: RunResult, slugs: Sequence[str]) -> list[Finding]:
    finding_of = {finding.rule: finding for finding in result.findings}
    unknown = [slug for slug in slugs if slug not in finding_of]
    if unknown:
        raise NotFoundError(f"This run has no finding {unknown[0]!r}. It has: {', '.join(finding_of) or 'none'}.")
    return [finding_of[slug] for slug in dict.fromkeys(slugs)]


def _no_replay(findings: Sequence[Finding]) -> str:
    note = next((finding.prediction_note for finding in findings if finding.prediction_note), "")
    return f"These changes cannot be predicted from this trace. {note}".strip()


def _replay(
    result: RunResult, lead: RankResult, findings: Sequence[Finding], changes: Changes, library: Library
) -> WhatIfPrediction:
    with library.open(lead.recording_id) as recording:
        whatif = whatif_of(recording, lead)
        if whatif is None:
            raise UsageError("No replay explains this trace, so changes cannot be predicted from it.")
        edits = tuple(
            dict.fromkeys(
                [*(edit for f in findings for edit in f.edits), *_edits_of_described(changes, recording, lead, whatif)]
            )
        )
    after_ms, interval = whatif.predict_ms(lead.best, edits), whatif.predict_range_ms(lead.best, edits)
    if after_ms is None or lead.best.ms is None:
        raise UsageError("This trace's steps cannot be replayed with these changes.")
    low_ms, high_ms = whatif.range_of_another_run_ms(lead.best, edits, interval) if interval is not None else (None, None)
    return _make_prediction(
        lead.best.ms, after_ms, low_ms, high_ms, [finding.rule for finding in findings if not finding.edits]
    )


def _edits_of_described(changes: Changes, recording: Recording, lead: RankResult, whatif: WhatIf) -> list[Edit]:
    """Return the edits of the changes that the caller describes.

    Raises UsageError for a change without effect.
    """
    if (count := len(changes.lost_time) + len(changes.kernels)) > MAX_CHANGES:
        raise UsageError(f"{count:,} changes are given. Give at most {MAX_CHANGES} in one call.")
    edits: list[Edit] = [_of_cause(less, whatif) for less in changes.lost_time]
    edits += [_of_kernels(kernel, recording, lead, whatif) for kernel in changes.kernels]
    if changes.host_time_factor is not None:
        edits.append(FasterHost(_factor(changes.host_time_factor, "host_time_factor")))
    return [*edits, *([AsGraph()] if changes.cuda_graph else [])]


def _of_cause(less: LessLostTime, whatif: WhatIf) -> Edit:
    if less.cause not in REMOVABLE_CAUSES:
        raise UsageError(
            f"{less.cause!r} is not a cause that a replay can remove. It can remove: {', '.join(REMOVABLE_CAUSES)}."
        )
    if not 0 <= less.keep_share <= 1:
        raise UsageError(f"keep_share is {less.keep_share:g}, but it must be the share that remains, from 0 to 1.")
    if less.cause in WAIT_CAUSES and less.keep_share:
        raise UsageError(f"Waits of {less.cause} can only be removed completely. Give a keep_share of 0.")
    if less.cause in HOST_CAUSES:
        return WithoutHostCause(less.cause, less.keep_share)
    host = whatif.problem.host
    waiting = (np.diff(host.wait_ptr) > 0) & (host.wait_cause == WAIT_CAUSES.index(less.cause))
    return WithoutWaits(tuple(host.call[waiting].tolist()))


def _of_kernels(kernel: KernelTime, recording: Recording, lead: RankResult, whatif: WhatIf) -> Edit:
    factor = _factor(kernel.factor, "factor")
    rows = recording.rows(
        "SELECT g.gpu_op_id FROM gpu_ops g JOIN names n USING (name_id) WHERE g.device = ? AND contains(n.name, ?)",
        [lead.device, kernel.name],
    )
    replayed = set(whatif.problem.ops.op.tolist())
    ops = tuple(int(row[0]) for row in rows if int(row[0]) in replayed)
    if not kernel.name or not ops:
        raise UsageError(f"No GPU operation of the replayed steps has a name that contains {kernel.name[:80]!r}.")
    return ScaledOps(ops, factor, factor, factor) if factor else WithoutOps(ops)


def _factor(value: float, name: str) -> float:
    if not 0 <= value <= MAX_FACTOR:
        raise UsageError(f"{name} is {value:g}, but it must be the new time ÷ the old time, from 0 to {MAX_FACTOR:g}.")
    return value


def _of_batch(result: RunResult, before_ms: float, factor: float, library: Library) -> WhatIfPrediction:
    if not 0 < factor <= MAX_FACTOR:
        raise UsageError(f"batch_factor is {factor:g}, but it must be the new batch ÷ the old batch, such as 2.")
    batch = at_batch(result, factor, library)
    if batch is None:
        raise UsageError("This trace does not show its batch, so another size cannot be predicted. Record with shapes.")
    return _make_prediction(before_ms, batch.step_ms, batch.low_ms, batch.high_ms, [], per_second=batch.rate)


def _make_prediction(
    before_ms: float,
    after_ms: float,
    low_ms: float | None,
    high_ms: float | None,
    left_out: list[str],
    *,
    per_second: float | None = None,
) -> WhatIfPrediction:
    interval = ""
    if low_ms is not None and high_ms is not None:
        interval = f" ({fmt.duration_ms(low_ms)} to {fmt.duration_ms(high_ms)})"
    rate = f", with {per_second:.2f} times as many samples per second" if per_second is not None else ""
    return WhatIfPrediction(
        before_ms, after_ms, low_ms, high_ms, before_ms - after_ms, before_ms / after_ms if after_ms else 1.0,
        f"A step takes {fmt.duration_ms(before_ms)} now and about {fmt.duration_ms(after_ms)}{interval} after the change{rate}.",
        left_out, per_second,
    )  # fmt: skip
