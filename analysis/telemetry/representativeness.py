"""Whether the profiled steps are representative of the run.

A few profiled steps may, for example, find a full prefetch queue that the run keeps empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, longer_than_profile
from sawtooth.analysis.units import in_words, significant

SHORT_KERNEL_NS = 20_000  # Utilization counts a window as busy while kernels below 20 µs follow each other, so it is too high.
StatementState = Literal["confirmed", "corrected", "telemetry alone"]


@dataclass(frozen=True)
class TelemetryStatement:
    """A statement of telemetry, the profile's answer to it, and the reason.

    ``state`` is "telemetry alone" if the profile cannot show whether the statement is true.
    """

    statement: str
    state: StatementState
    because: str


class StatementPart(TypedDict):
    """A statement of telemetry, and whether the profile confirms it, corrects it, or cannot show it."""

    statement: str
    state: StatementState
    because: str


@dataclass(frozen=True)
class Representativeness:
    """Whether the profile represents the run, and the step time from telemetry.

    ``represents`` is None if telemetry does not show it, with the reason in ``sentence``. ``step_ns`` is telemetry's step time.
    """

    represents: bool | None
    step_ns: float | None
    sentence: str


def judge_profile(
    telemetry: StepTimeEvidence | str, estimate_ns: float | None, profiled_ms: float | None = None, *, bounded: bool = True
) -> Representativeness:
    """Compare the unprofiled step estimate and the profiled step with telemetry's evidence.

    ``telemetry`` may also be the reason why there is no evidence. ``bounded`` is false if the loader's workers never waited in the
    profile, so that the estimate has no upper bound.
    """
    if isinstance(telemetry, str):
        return Representativeness(None, None, telemetry)
    if telemetry.ms is None:
        return Representativeness(None, None, telemetry.notes[0])
    if not estimate_ns:
        return Representativeness(None, telemetry.ms * 1e6, "There is no estimate of the step to compare telemetry with.")
    estimate = estimate_ns / 1e6
    ratio = telemetry.ms / estimate
    telemetry_result = f"{telemetry.notes[0]} This step time, {in_words(telemetry.ms)}, is"
    if longer_than_profile(telemetry.ms, telemetry.low_ms, estimate, profiled_ms, bounded=bounded):
        sentence = f"{telemetry_result} {significant(ratio, 2)} times the {in_words(estimate)} estimated from the profile. The profiled steps are not representative of the run."
        return Representativeness(False, telemetry.ms * 1e6, sentence)
    relation = "in line with" if telemetry.contains(estimate) else f"{significant(ratio, 2)} times"
    sentence = f"{telemetry_result} {relation} the {in_words(estimate)} estimated from the profile."
    return Representativeness(True, telemetry.ms * 1e6, sentence)
