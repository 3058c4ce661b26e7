"""The result of `sawtooth try`, as a table for people and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from sawtooth.app import format as fmt
from sawtooth.app.printable import aligned
from sawtooth.app.trials import steps
from sawtooth.app.trials.choosing import Candidate, group_of
from sawtooth.app.trials.endings import MAX_PROLONGATION, MIN_STEPS
from sawtooth.app.trials.session import TrialSession
from sawtooth.app.trials.trial import Trial
from sawtooth.ingest.capture.trials.changes import outermost

COMPILING = (outermost.COMPILE, outermost.GRAPHS)
MIN_MEMORY_MIB, MIN_START_S = 50.0, 1.0  # Smaller costs are not shown, because they vary by this much between runs.


def plain(session: TrialSession) -> dict[str, Any]:
    """Return the result as JSON values."""
    low, high = session.base_interval_ms
    return {
        "command": session.command,
        "base": {"step_ms": session.base_ms, "low_ms": low, "high_ms": high, "runs": [base.run_id for base in session.bases]},
        "trials": [_as_json(trial) for trial in session.trials],
    }


def _as_json(trial: Trial) -> dict[str, Any]:
    return {
        "change": trial.slug,
        "predicted_step_ms": trial.predicted_ms,
        "predicted_low_ms": trial.predicted_low_ms,
        "predicted_high_ms": trial.predicted_high_ms,
        "inside": trial.is_inside,
        "measured_step_ms": trial.measured_ms,
        "low_ms": trial.low_ms,
        "high_ms": trial.high_ms,
        "status": trial.status,
        "why": trial.why,
        "proof": trial.proof,
        "result": _result(trial),
        "values": {name: value for candidate in trial.candidates for name, value in candidate.values.items()},
        "rule": trial.candidates[0].rule,
        "code": [candidate.code for candidate in trial.candidates if candidate.code],
        "memory_mib": trial.memory_mib,
        "start_s": trial.start_s,
        "losses": trial.losses,
        "run": trial.run_id,
    }


def _result(trial: Trial) -> str | None:
    """Return the strongest effect of the trial's changes on the training's numbers.

    It is None without known changes.
    """
    order = ("same result", "rounding", "other result")
    kinds = [candidate.change.result for candidate in trial.candidates if candidate.change is not None]
    return max(kinds, key=order.index, default=None)


def lines(session: TrialSession) -> list[str]:
    """Return the table, with remarks on the trials and the code of kept changes below it."""
    base_ms, (low_ms, high_ms) = session.base_ms, session.base_interval_ms
    out = []
    if base_ms is not None:
        runs = f"{len(session.bases)} run{'s' if len(session.bases) > 1 else ''}"
        out.append(f"Step without a change: {_with_interval(base_ms, low_ms, high_ms)}, {runs}.")
    if session.trials:
        rows = [("change", "predicted", "measured", "inside", "status", "costs"), *map(_row, session.trials)]
        out += ["", *aligned(rows)]
    for trial in session.trials:
        remarks = _remarks(trial, session)
        if remarks:
            out += ["", f"{trial.slug}: {remarks}"]
        if trial.status == "kept":
            out += [f"  {line}" for candidate in trial.candidates for line in candidate.code.splitlines()]
    return out


def planned(to_try: Sequence[Candidate], session: TrialSession) -> list[str]:
    """Return the planned trials, and how long they take."""
    out = ["These changes are tried. Before and after each trial, a run without changes is measured:"]
    for candidate in to_try:
        predicted = f", predicted {_ms(candidate.predicted_ms)}" if candidate.predicted_ms is not None else ""
        result = candidate.change.result if candidate.change is not None else ""
        out.append(f"  {candidate.slug}: {candidate.code.splitlines()[0]} ({result}{predicted})")
    min_runs = 2 * len(to_try)  # A trial needs its own run and a base run after it.
    # One more trial has all accepted changes, and a base run follows it.
    max_runs = min_runs + (2 if len(set(map(group_of, to_try))) > 1 else 0)
    min_s, max_s = _run_s(session)
    runs = f"{min_runs} to {max_runs}" if max_runs > min_runs else str(min_runs)
    total = _span(min_runs * min_s, max_runs * max_s)
    compiles = ", compiling" if any(candidate.slug in COMPILING for candidate in to_try) else ""
    out.append(f"{runs} runs of {_span(min_s, max_s)}: {total} in all, plus evaluations{compiles} and trials that hang.")
    return out


def _span(low_s: float, high_s: float) -> str:
    low, high = (fmt.duration_ns(seconds * 1e9) for seconds in (low_s, high_s))
    return low if low == high else f"{low} to {high}"


def _run_s(session: TrialSession) -> tuple[float, float]:
    """Return the shortest and the longest time in s of a run with its start and analysis."""
    base, seconds, step_s = session.bases[0], session.options.seconds, (session.base_ms or 0.0) / 1e3
    max_training_s = max(seconds, min(MIN_STEPS * step_s, MAX_PROLONGATION * seconds))
    min_training_s = min(max(min(steps.MIN_S, seconds / 2), steps.MIN_STEPS * step_s), max_training_s)
    start_and_analysis_s = (base.run.start_s or 0.0) + base.analysis_s
    return start_and_analysis_s + min_training_s, start_and_analysis_s + max_training_s


def _row(trial: Trial) -> tuple[str, ...]:
    return (
        trial.slug,
        _with_interval(trial.predicted_ms, trial.predicted_low_ms, trial.predicted_high_ms),
        _with_interval(trial.measured_ms, trial.low_ms, trial.high_ms),
        {True: "yes", False: "no", None: ""}[trial.is_inside],
        trial.status.replace("_", " "),
        _costs(trial),
    )


def _costs(trial: Trial) -> str:
    if trial.measured_ms is None:
        return ""
    costs = []
    if trial.memory_mib is not None and abs(trial.memory_mib) >= MIN_MEMORY_MIB:
        costs.append(f"{trial.memory_mib:+,.0f} MiB of host memory")
    if trial.start_s is not None and trial.start_s >= MIN_START_S:
        costs.append(f"{trial.start_s:+.0f} s until the steps run steadily")
    result = _result(trial)
    return "; ".join([*costs, *([result] if result else [])])


def _remarks(trial: Trial, session: TrialSession) -> str:
    """Return sentences on the gain, on changed losses and on the reason of the status, if any."""
    parts = []
    if trial.status in ("kept", "slower") and session.base_ms and trial.measured_ms:
        if trial.times_work != 1.0:
            rate = session.base_ms * trial.times_work / trial.measured_ms
            parts.append(f"{fmt.share(abs(rate - 1))} {'more' if rate > 1 else 'fewer'} samples a second.")
        elif trial.measured_ms < session.base_ms:
            parts.append(f"A step takes {_ms(trial.measured_ms)} instead of {_ms(session.base_ms)}.")
            parts += _not_faster_than_one(trial, session)
    if trial.losses and session.bases[0].run.notes and (base_losses := session.bases[0].run.notes[0].get("losses")):
        pairs = list(zip(base_losses, trial.losses, strict=False))
        difference = statistics.fmean(abs(before - after) / max(abs(before), 1e-12) for before, after in pairs)
        parts.append(f"The change alters the losses of the first {len(pairs)} steps by {fmt.share(difference)} on average.")
    return " ".join([*parts, *([trial.why] if trial.why else [])])


def _not_faster_than_one(trial: Trial, session: TrialSession) -> list[str]:
    """Return a sentence if one change of ``trial`` alone is as fast as all of them together."""
    names = {candidate.slug for candidate in trial.candidates}
    single_trials = [
        trial_alone
        for trial_alone in session.trials
        if trial_alone.status == "kept" and trial_alone.slug in names and trial_alone.measured_ms
    ]
    best = min(single_trials, key=lambda trial_alone: trial_alone.measured_ms or 0.0, default=None)
    if len(names) < 2 or best is None or (best.measured_ms or 0.0) > (trial.measured_ms or 0.0):
        return []
    return [f"{best.slug} alone is as fast ({_ms(best.measured_ms)})."]


def _with_interval(value: float | None, low: float | None, high: float | None) -> str:
    return _ms(value) + (f" ({_ms(low)} to {_ms(high)})" if None not in (value, low, high) else "")


def _ms(value: float | None) -> str:
    return fmt.MISSING if value is None else fmt.duration_ms(value)
