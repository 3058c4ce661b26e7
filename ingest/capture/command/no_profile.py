"""Reasons why a training has no profile, and what to do.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from sawtooth.ingest.capture.command import hook
from sawtooth.ingest.capture.command.loop_times import LEAST_STEPS, PATIENCE_S
from sawtooth.ingest.capture.command.rank_agreement import RANKS_LEAD
from sawtooth.ingest.capture.command.recorded_runs import RecordedRun, loop_of

NO_LOOP = (
    "No training loop was seen: no optimizer of PyTorch (2.1 or newer) stepped, and no backward pass, module or loader came again and again, so {recorded} was "
    "recorded. Give the command that trains, such as sawtooth run train.py, or record from inside: from sawtooth.capture import profile."
)
TOO_SHORT = (
    "No profile: the loop took {steps} in {seconds}, and a profile needs {needed} steps{at_pace}. Train longer{or_sooner}."
)
UNSTEADY = (
    f"No profile: in {{steps}} and {{seconds}} the loop never was steady, or ended while the profile was taken. After {PATIENCE_S:g} s one is taken "
    "all the same: train longer."
)
EARLIER = 0.5  # of the time that is left before the profiled steps: a shorter loop than this one is profiled too


def no_loop(runs: Sequence[RecordedRun]) -> str | None:
    """Return a sentence that no loop was seen and what was recorded; None if ``runs`` have step marks."""
    if any(about["kind"] == "marks" for run in runs for _, about in run.sources):
        return None
    return NO_LOOP.format(recorded="telemetry alone" if runs else "nothing")


def no_profile(run: RecordedRun, profiled: int, after_s: float) -> str:
    """Return a sentence with the steps that ``run`` took and the steps that its profile needs.

    The profile has ``profiled`` steps after ``after_s`` seconds. ``run`` has step marks; with several ranks, those of the first count.
    """
    marks = _marks_of(run)
    steps, seconds = loop_of(marks[0])
    taken = profiled + 2  # the first is cut by the start, and the one after the last ends it
    ranks = RANKS_LEAD + hook.LOOK_EVERY if len(marks) > 1 else 0
    least = LEAST_STEPS + taken + ranks
    pace_s = seconds / (steps - 1) if steps > 1 else 0.0
    by_time = ceil(after_s / pace_s) + taken + ranks if pace_s else least
    text = {"steps": _steps(steps), "seconds": _seconds(seconds)}
    if steps >= max(least, by_time):
        return UNSTEADY.format(**text)
    if by_time <= least:
        return TOO_SHORT.format(**text, needed=least, at_pace="", or_sooner="")
    after_s_too = EARLIER * (steps - taken - ranks) * pace_s
    sooner = f", or sawtooth run --after {after_s_too:.{0 if after_s_too >= 10 else 2}f} …" if steps >= least else ""
    return TOO_SHORT.format(**text, needed=f"{by_time:,}", at_pace=f" at this pace ({after_s:g} s)", or_sooner=sooner)


def steps_taken(run: RecordedRun) -> str:
    """Return the number of steps of ``run`` in words (first rank); "" without step marks."""
    marks = _marks_of(run)
    return _steps(loop_of(marks[0])[0]) if marks else ""


def _marks_of(run: RecordedRun) -> list[Path]:
    return [path for path, about in run.sources if about["kind"] == "marks"]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
