"""Reasons why a training has no profile, and what to do.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from sawtooth.ingest.capture.command.loop_times import MAX_UNSTEADY_S, MIN_STEPS_BEFORE_PROFILE
from sawtooth.ingest.capture.command.recorded_runs import RecordedRun, is_loop, loop_extent
from sawtooth.ingest.capture.command.without_optimizer import timed_profile
from sawtooth.ingest.capture.in_process.profile_cost import MIN_PROFILED_STEPS
from sawtooth.ingest.capture.in_process.rank_agreement import lead_steps

NO_LOOP = "No loop was seen: no optimizer of PyTorch (2.1 or newer) stepped twice, and no backward pass, module call or loader batch came three times. "
NO_LOOP_RECORDED = NO_LOOP + "So {recorded} was recorded. {why}"
# Explanations of the missing profile, by the reason that the timed profile noted. The reason is None if no profile was tried.
REASONS = {
    timed_profile.OLD_PYTORCH: "Profiling a program without a loop needs PyTorch 2.7 or newer.",
    timed_profile.NO_OPERATION: "PyTorch ran no operation during the profile{at}. Run the command that does the computation, such as sawtooth run train.py.",
    timed_profile.INSIDE_CALL: f"A profile can only begin when the main thread returns to Python, but it stayed inside one call for {timed_profile.MAX_START_S:g} s{{at}}.",
    None: (
        "Such a program is profiled for {seconds:g} s, beginning {after:g} s after PyTorch was loaded{sooner}. On a host with a GPU, the profile waits until the GPU is used."
    ),
}
SOONER_ADVICE = " (use --after {after:g} to begin after {wait:g} s)"
PROFILED_WITHOUT_LOOP = (
    NO_LOOP
    + "So {seconds} of the program were profiled, {after} after PyTorch was loaded. The answer covers only this time and has no steps."
)
TOO_SHORT = (
    "No profile: the loop took {steps} in {seconds}, and a profile needs {needed} steps{reason}. Train longer{or_sooner}."
)
UNSTEADY = (
    "No profile: the loop was never steady during {steps} ({seconds}), or the loop ended during the profile. "
    "After {patience_s:g} s a loop is profiled even if it is not steady. Train longer."
)
# The advised --after is this share of the longest --after that would have worked, so that a somewhat shorter loop is profiled too.
ADVISED_SHARE = 0.5


def has_marks(runs: Sequence[RecordedRun]) -> bool:
    """Return whether ``runs`` have step marks."""
    return any(about["kind"] == "marks" for run in runs for _, about in run.sources)


def has_loop(runs: Sequence[RecordedRun]) -> bool:
    """Return whether ``runs`` have the marks of a loop of at least two steps."""
    return any(about["kind"] == "marks" and is_loop(path) for run in runs for path, about in run.sources)


def is_profiled(runs: Sequence[RecordedRun]) -> bool:
    """Return whether the first of ``runs`` has a profile."""
    return any(about["kind"] == "trace" for run in runs[:1] for _, about in run.sources)


def no_loop_sentence(runs: Sequence[RecordedRun], folder: Path, after_s: float) -> str:
    """Return the message that no loop was seen, with what was recorded instead.

    ``folder`` has the notes of the timed profile.
    """
    notes = list(timed_profile.notes_of(folder))
    if is_profiled(runs):
        longest = max((note for note in notes if "seconds" in note), key=lambda note: float(note["seconds"]), default=None)
        if longest is None:  # The note of the profile was lost, for example on a full disk.
            return f"{NO_LOOP}The answer covers only the time of the profile and has no steps."
        return PROFILED_WITHOUT_LOOP.format(seconds=_seconds(longest["seconds"]), after=_seconds(longest["after_s"]))
    note = notes[0] if notes else {}
    least_s = timed_profile.MIN_WAIT_S
    after = max(timed_profile.WAIT_FACTOR * after_s, least_s)
    sooner = SOONER_ADVICE.format(after=least_s / timed_profile.WAIT_FACTOR, wait=least_s) if after > least_s else ""
    at = f"; the main thread was at {note['line']}" if note.get("line") else ""
    why = REASONS[note.get("why")].format(seconds=timed_profile.PROFILE_S, after=after, sooner=sooner, at=at)
    return NO_LOOP_RECORDED.format(recorded="telemetry alone" if runs else "nothing", why=why)


def no_profile_sentence(run: RecordedRun, profiled: int, after_s: float) -> str:
    """Return the message about the number of steps that ``run`` took, and the number that a profile needs.

    The profile should have begun after ``after_s`` seconds, with ``profiled`` steps. ``run`` has step marks. Of several ranks, the
    first rank counts.
    """
    marks = _marks_files(run)
    steps, seconds = loop_extent(marks[0])
    step_s = seconds / (steps - 1) if steps > 1 else 0.0
    partial_steps = 2  # The profile begins during one step and is ended by another.
    agreement_steps = (
        lead_steps(step_s * 1e9) if len(marks) > 1 else 0
    )  # Several ranks begin some steps after rank 0's decision.
    profile_steps = min(profiled, MIN_PROFILED_STEPS) + partial_steps + agreement_steps
    min_steps = MIN_STEPS_BEFORE_PROFILE + profile_steps
    min_steps_by_time = ceil(after_s / step_s) + profile_steps if step_s else min_steps
    text = {"steps": _steps(steps), "seconds": _seconds(seconds)}
    if steps >= max(min_steps, min_steps_by_time):
        return UNSTEADY.format(**text, patience_s=MAX_UNSTEADY_S)
    if min_steps_by_time <= min_steps:
        return TOO_SHORT.format(**text, needed=min_steps, reason="", or_sooner="")
    advised_s = ADVISED_SHARE * (steps - profile_steps) * step_s
    sooner = f", or use sawtooth run --after {advised_s:.{0 if advised_s >= 10 else 2}f} …" if steps >= min_steps else ""
    reason = f" of this length, because it begins after {after_s:g} s"
    return TOO_SHORT.format(**text, needed=f"{min_steps_by_time:,}", reason=reason, or_sooner=sooner)


def steps_taken(run: RecordedRun) -> str:
    """Return the number of steps of the first rank of ``run``, as text; "" without step marks."""
    marks = _marks_files(run)
    return _steps(loop_extent(marks[0])[0]) if marks else ""


def _marks_files(run: RecordedRun) -> list[Path]:
    return [path for path, about in run.sources if about["kind"] == "marks"]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
