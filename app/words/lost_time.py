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
from sawtooth.analysis.run.verdict import Column, StepPart, parts_of
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes

MIN_ROW_SHARE = 0.01  # Share of the largest cause. Smaller causes are added up in one row.
NOT_OF_THE_RUN = "profiler"  # A cause that exists only under the profiler, even if a replay leaves a part of it.
REST = "everything else"
LINE = re.compile(r"\.py:[0-9]+")  # Matches a line of the user's own code.


@dataclass(frozen=True)
class LostTimeRow:
    """A cause of lost time: ``ms`` per step on the chosen basis, ``other_ms`` on the other basis.

    ``owner`` is "" for the sum of the small causes. ``called`` is the name that a finding gives to the time. The GPU copies or
    communicates during ``transfer_ms`` of it.
    """

    owner: str
    cause: str | None
    ms: float
    other_ms: float
    transfer_ms: float = 0.0
    called: str = ""

    @property
    def label(self) -> str:
        """The cause's name with a capital letter, for the start of a sentence."""
        return self.name[0].upper() + self.name[1:]

    @property
    def name(self) -> str:
        """The cause's name within a sentence."""
        # A cause may contain a proper name, such as "Python on the host", so its capitals stay.
        return self.called or (colour_of(self.owner, self.cause).label if self.owner else REST)

    @property
    def key(self) -> str:
        """The key of this cause in tables of places and pieces: the cause, or the owner if there is none."""
        return known_by(self.owner, self.cause)

    @property
    def helps(self) -> str:
        """What to change about this cause; "" for the sum of the small causes."""
        return causes.helps(self.owner, self.cause) if self.owner else ""


def rows(rank: RankResult, column: Column, names: Mapping[str, str] = MappingProxyType({})) -> list[LostTimeRow]:
    """Return lost time by cause as the Verdict divides it, largest first; rows sum to ``total_ms``.

    Small causes are added up in the last row. Rows with 0 ms are left out, so there are no rows if ``column`` has no lost time,
    even if the other column has some. ``names`` are the names that the first change gives to causes.
    """
    other: Column = "recorded" if column == "unprofiled" else "unprofiled"
    parts_here, parts_there = ({_key(part): part for part in parts_of(rank, each) if part.lost} for each in (column, other))
    largest = max((part.ms for part in parts_here.values()), default=0.0)
    named, small, small_other, small_transfer = [], 0.0, 0.0, 0.0
    for key in dict.fromkeys([*parts_here, *parts_there]):
        part = parts_here.get(key) or parts_there[key]
        ms, other_ms = (side[key].ms if key in side else 0.0 for side in (parts_here, parts_there))
        transfer_ms = parts_here[key].transfer_ms if key in parts_here else 0.0
        if ms <= MIN_ROW_SHARE * largest or (part.cause == NOT_OF_THE_RUN and column == "unprofiled"):
            small, small_other, small_transfer = small + ms, small_other + other_ms, small_transfer + transfer_ms
        else:
            named.append(LostTimeRow(part.owner, part.cause, ms, other_ms, transfer_ms, names.get(part.cause or "", "")))
    named.sort(key=lambda row: -row.ms)
    return [*named, LostTimeRow("", None, small, small_other, small_transfer)] if small else named


def _key(part: StepPart) -> tuple[str, str | None]:
    return ("" if is_explained(part.cause) else part.owner, part.cause)


def hidden_by(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding about time outside the profiled steps, if it names a cause."""
    return next((finding for finding in findings if "hidden" in finding.explains.topics and finding.explains.causes), None)


def total_ms(of: Sequence[LostTimeRow]) -> float:
    """Return the sum of the rows."""
    return sum(row.ms for row in of)


def sentence(rank: RankResult, column: Column, of: Sequence[LostTimeRow], hidden: Finding | None = None) -> str:
    """Return how much of a step is lost and its main cause.

    An example is "≈ 137 ms of each 148 ms step is lost, 110 ms of it to the host launching kernels". ``hidden`` is the finding
    with the most likely cause of the time outside the profiled steps.
    """
    prefix = "≈\u00a0" if column == "unprofiled" else ""
    whole = sum(part.ms for part in parts_of(rank, column))
    step = f"each {fmt.duration_ms(whole)}{' profiled' if column == 'recorded' and rank.best.source != 'profile' else ''} step"
    lost = f"{prefix}{fmt.duration_ms(total_ms(of))} of {step if len(rank.counted) else 'the recorded time'} is lost"
    first = of[0]
    to = first.called or (causes.loses_to(first.owner, first.cause) if first.owner else REST)
    if first.owner == OUTSIDE_PROFILE and hidden is not None:
        to = f"{to}, most likely {CAUSE_OF[hidden.explains.causes[0]].loses_to}"
    return f"{lost} to {to}." if len(of) == 1 else f"{lost}, {fmt.duration_ms(first.ms)} of it to {to}."


def differ(of: Sequence[LostTimeRow]) -> bool:
    """Return whether the time of any cause differs between the two bases."""
    return any(row.owner and row.other_ms and abs(row.ms - row.other_ms) > MIN_ROW_SHARE * row.ms for row in of)


def largest_part(place: str, *, with_stack: bool) -> str:
    """Return where the largest part of a cause is; without Python calls, how to record the line."""
    at = "at " if LINE.search(place) else "" if place.startswith("before ") else "in "
    unknown = "" if at == "at " or with_stack else " To record your own line, use `sawtooth run --stacks`."
    return f"Most of it is {at}{place}.{unknown}"


def busy_meanwhile(of: Sequence[LostTimeRow]) -> str | None:
    """Return how long the GPU copies or communicates during the lost time; None if it hardly does.

    Most other tools count this time as busy.
    """
    ms = sum(row.transfer_ms for row in of)
    if ms < MIN_ROW_SHARE * total_ms(of) or not ms:
        return None
    idle_ms = max(total_ms(of) - ms, 0.0)
    still = f"; for the other {fmt.duration_ms(idle_ms)} it does nothing" if idle_ms >= MIN_ROW_SHARE * ms else ""
    return f"For {fmt.duration_ms(ms)} of this the GPU copies or communicates while nothing computes{still}."
