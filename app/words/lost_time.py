"""Lost time in rows that add up: the causes of waiting on one basis, and their total."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.knowledge.lost_time import is_explained, known_by
from sawtooth.analysis.knowledge.owners import OUTSIDE_PROFILE
from sawtooth.analysis.run.model import Finding, RankResult
from sawtooth.analysis.run.verdict import Column, parts_of
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes

MIN_ROW_SHARE = 0.01  # Share of the largest cause. Smaller causes are added up in one row.
PROFILER_CAUSE = "profiler"  # This time exists only under the profiler, although a replay may not remove all of it.
REST = "everything else"
SOURCE_LINE = re.compile(r"\.py:[0-9]+")


@dataclass(frozen=True)
class LostTimeRow:
    """A cause of lost time with its ``ms`` per step.

    The GPU copies or communicates in ``transfer_ms`` of ``ms``. ``owner`` is "" for the sum of the small causes. ``called`` is the
    name that a finding gives to this time.
    """

    owner: str
    cause: str | None
    ms: float
    transfer_ms: float = 0.0
    called: str = ""

    @property
    def label(self) -> str:
        """The cause's name with a capital letter, for the start of a sentence."""
        return self.name[0].upper() + self.name[1:]

    @property
    def name(self) -> str:
        """The cause's name within a sentence."""
        return self.called or (colour_of(self.owner, self.cause).label if self.owner else REST)

    @property
    def key(self) -> str:
        """The key of this cause in tables of places and pieces: the cause, or else the owner."""
        return known_by(self.owner, self.cause)

    @property
    def helps(self) -> str:
        """What to change about this cause; "" for the sum of the small causes."""
        return causes.helps(self.owner, self.cause) if self.owner else ""


def rows(rank: RankResult, column: Column, names: Mapping[str, str] = MappingProxyType({})) -> list[LostTimeRow]:
    """Return lost time by cause as the Verdict divides it, largest first.

    Small causes are summed in the last row. The list is empty if ``column`` has no lost time. ``names`` are the names that the first change gives to causes.
    """
    parts = {("" if is_explained(part.cause) else part.owner, part.cause): part for part in parts_of(rank, column) if part.lost}
    largest_ms = max((part.ms for part in parts.values()), default=0.0)
    large, small, small_transfer = [], 0.0, 0.0
    for part in parts.values():
        if part.ms <= MIN_ROW_SHARE * largest_ms or (part.cause == PROFILER_CAUSE and column == "unprofiled"):
            small, small_transfer = small + part.ms, small_transfer + part.transfer_ms
        else:
            large.append(LostTimeRow(part.owner, part.cause, part.ms, part.transfer_ms, names.get(part.cause or "", "")))
    large.sort(key=lambda row: -row.ms)
    return [*large, LostTimeRow("", None, small, small_transfer)] if small else large


def hidden_time_finding(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding that names a cause of time outside the profiled steps, else None."""
    return next((finding for finding in findings if "hidden" in finding.explains.topics and finding.explains.causes), None)


def total_ms(lost: Sequence[LostTimeRow]) -> float:
    """Return the sum of the rows' times in ms."""
    return sum(row.ms for row in lost)


def sentence(rank: RankResult, column: Column, lost: Sequence[LostTimeRow], hidden: Finding | None = None) -> str:
    """Return how much of a step is lost, and the main cause.

    An example is "≈ 137 ms of each 148 ms step is lost, 110 ms of it to the host launching kernels". ``hidden`` is the finding
    with the most likely cause of the time outside the profiled steps.
    """
    prefix = "≈\u00a0" if column == "unprofiled" else ""
    step_ms = sum(part.ms for part in parts_of(rank, column))
    profiled = " profiled" if column == "recorded" and rank.best.source != "profile" else ""
    step = f"each {fmt.duration_ms(step_ms)}{profiled} step" if len(rank.counted) else "the recorded time"
    loss = f"{prefix}{fmt.duration_ms(total_ms(lost))} of {step} is lost"
    first = lost[0]
    cause = first.called or (causes.loses_to(first.owner, first.cause) if first.owner else REST)
    if first.owner == OUTSIDE_PROFILE and hidden is not None:
        cause = f"{cause}, most likely {CAUSE_OF[hidden.explains.causes[0]].loses_to}"
    return f"{loss} to {cause}." if len(lost) == 1 else f"{loss}, {fmt.duration_ms(first.ms)} of it to {cause}."


def largest_part(place: str, *, with_stack: bool) -> str:
    """Return where the largest part of a cause is, and how to record the source line if it is not known."""
    preposition = "at " if SOURCE_LINE.search(place) else "" if place.startswith("before ") else "in "
    remedy = "" if preposition == "at " or with_stack else " To record your own line, use `sawtooth run --stacks`."
    return f"Most of it is {preposition}{place}.{remedy}"


def busy_meanwhile(lost: Sequence[LostTimeRow]) -> str | None:
    """Return how long the GPU copies or communicates in the lost time; None if it hardly does.

    Most other tools count this time as busy.
    """
    transfer_ms = sum(row.transfer_ms for row in lost)
    if transfer_ms < MIN_ROW_SHARE * total_ms(lost) or not transfer_ms:
        return None
    idle_ms = max(total_ms(lost) - transfer_ms, 0.0)
    idle = f"; for the other {fmt.duration_ms(idle_ms)} it does nothing" if idle_ms >= MIN_ROW_SHARE * transfer_ms else ""
    return f"For {fmt.duration_ms(transfer_ms)} of this the GPU copies or communicates while nothing computes{idle}."
