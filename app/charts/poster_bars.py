"""A step as a bar, as plain data for the poster, the reports and the slide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import RunJudgement, judge
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.charts.waterfall import WaterfallBar, change_with_arrow
from sawtooth.app.theme import ACCENT, MUTED, UNKNOWN, Colour, colour_of, place_of

NAMED_FROM = 0.01  # Share of the step: a narrower part shows its name only on hover.
LETTER_SHARE = 0.0078  # Share of the bar: width of a letter on a laptop's page. A part with less room is named below the bar.
NARROW_LETTER_SHARE = 0.035  # The same on a narrow page, whose bars are a third as long.
MARGIN_LETTERS = 3  # Letters: room around a number, so that it is not cut off.
MAX_NUMBERED_BARS = 6  # Bars: with more, the same numbers in each bar would be noise.
MIN_BAR_SHARE = 0.004  # Share of the longer step: smaller changes are added up as one, so that the sum remains exact.


@dataclass(frozen=True)
class BarSegment:
    """A part of a bar.

    ``hint`` appears on hover, ``label`` inside the part, ``short`` on a phone ("" means ``hint``). ``weight`` is the width in
    parts per thousand. ``number`` appears inside the part on a narrow page, where a legend has its name.
    """

    hint: str
    label: str
    weight: float
    colour: str
    texture: str
    short: str = ""
    number: str = ""


@dataclass(frozen=True)
class StepBar:
    """A step as a bar: its name, time, width relative to the longest bar (CSS), and pieces.

    ``shorter`` says by how much the step is shorter, if there is room. ``ratio`` is its factor against the other step.
    """

    name: str
    time: str
    width: str
    parts: tuple[BarSegment, ...]
    shorter: str = ""
    ratio: str = ""


@dataclass(frozen=True)
class BarChart:
    """Bars of several steps with the same parts, plus the fields of ``base.Chart``.

    ``unit`` is the unit of the times.
    """

    title: str
    bars: tuple[StepBar, ...]
    legend: tuple[LegendEntry, ...]
    unit: str
    alt: str
    table: pd.DataFrame
    columns: Mapping[str, str]
    metrics: tuple[str, ...]
    method: str


@dataclass(frozen=True)
class WaterfallStep:
    """A bar of a change from A's step to B's: its start and length (CSS), change in words, and fill."""

    name: str
    text: str
    left: str
    width: str
    colour: str
    texture: str


def plain_data(bars: Sequence[StepBar | WaterfallStep | BarSegment]) -> list[dict[str, Any]]:
    """Return bars as plain data for a browser."""
    return [asdict(bar) for bar in bars]


@dataclass(frozen=True)
class PlannedStep:
    """The step after all changes of a plan: its name, its time in words, and its ms.

    An example of the name is "all 6 changes: 2.0 ×". The time in words may be a range.
    """

    name: str
    time: str
    ms: float


def of_run(
    result: RunResult, before: str, forecast: CombinedPrediction | None, *, plan: PlannedStep | None = None
) -> list[StepBar]:
    """Return the run's step, which takes ``before``, and the predicted steps, on one scale.

    The predicted steps are that after the change and that after the whole ``plan``, if they are known. The list is empty if the
    step cannot be divided into parts.
    """
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is not None:
        bars = now_and_after(verdict, before, forecast)
        return bars + (
            [_after("plan", plan.name, plan.time, plan.ms, verdict.step.value)] if plan and verdict.step.value else []
        )
    parts = host_parts(result)
    step_ms = sum(parts.values())
    pieces = [
        _piece(colour_of(part), ms, ms / step_ms, dark=False)
        for part, ms in sorted(parts.items(), key=lambda part: place_of(part[0]))
    ]
    return _now_and_after(pieces, step_ms, before, forecast) if pieces else []


def of_shares(parts: Sequence[tuple[str, str | None, float]], *, dark: bool) -> tuple[BarSegment, ...]:
    """Return the parts of a step as a narrow bar without text, useful time first.

    ``parts`` has owner, cause and share.
    """
    ordered = sorted(parts, key=lambda part: place_of(*part[:2]))
    named = [(colour_of(owner, cause), share) for owner, cause, share in ordered]
    return tuple(
        BarSegment(f"{colour.label}: {fmt.share(share)}", "", round(share * 1000, 1), colour.on(dark), colour.texture)
        for colour, share in named
    )


def now_and_after(verdict: RunJudgement, before: str, forecast: CombinedPrediction | None) -> list[StepBar]:
    """Return the bars of a run whose GPU works; see ``of_run``."""
    return _now_and_after(_pieces(verdict), float(verdict.step.value or 0.0), before, forecast)


def _now_and_after(
    pieces: Sequence[BarSegment], now_ms: float, before: str, forecast: CombinedPrediction | None
) -> list[StepBar]:
    bars = [StepBar("now", before, "100%", tuple(pieces))]
    if forecast is not None and now_ms:
        after = f"≈\u00a0{fmt.duration_ms(forecast.after_ms)}"
        bars.append(_after("after", "after the change", after, forecast.after_ms, now_ms))
    return bars


def _after(row: str, name: str, time: str, after_ms: float, now_ms: float) -> StepBar:
    """Return a step with a predicted time of ``after_ms``; the replay predicts only its total time."""
    share = min(after_ms / now_ms, 1.0)
    shorter = f"{fmt.saved_time(now_ms, after_ms)} shorter"
    rest_bar = BarSegment(
        f"{name}, {time}" if ":" in name else f"{name}: {time}",
        _if_room(name, share),
        max(1000 * share, 1.0),
        MUTED.light,
        "",
    )
    return StepBar(row, time, f"{share:.2%}", (rest_bar,), _if_room(shorter, 1 - share))


def bars_of(steps: Sequence[tuple[str, Sequence[tuple[Colour, float]]]], *, dark: bool) -> tuple[StepBar, ...]:
    """Return a bar for each step, all on one scale; a legend names the parts.

    Each step has a name and its parts (colour and ms). A part shows its number if there is room.
    """
    longest = max((sum(ms for _, ms in parts) for _, parts in steps), default=0.0) or 1.0
    drawn, is_numbered = [], len(steps) <= MAX_NUMBERED_BARS
    for name, parts in steps:
        total = sum(ms for _, ms in parts)
        pieces = tuple(
            _segment_with_number(colour, ms, ms / longest, dark, shown=is_numbered) for colour, ms in parts if ms > 0
        )
        drawn.append(StepBar(name, fmt.duration_ms(total), f"{total / longest:.2%}", pieces))
    return tuple(drawn)


def _segment_with_number(colour: Colour, ms: float, share: float, dark: bool, *, shown: bool) -> BarSegment:
    number = fmt.duration_ms(ms)
    label = narrow = ""
    if shown:
        label = next((t for t in (f"{colour.label} {number}", number) if share >= LETTER_SHARE * (len(t) + MARGIN_LETTERS)), "")
        narrow = number if share >= NARROW_LETTER_SHARE * len(number) else ""
    return BarSegment(
        f"{colour.label}: {number}", label, round(1000 * share, 1), colour.on(dark), colour.texture, number=narrow
    )


def _if_room(label: str, share: float) -> str:
    return label if share >= LETTER_SHARE * len(label) else ""


def unlabelled(bars: Sequence[StepBar]) -> list[BarSegment]:
    """Return the pieces that are too narrow for a name but wide enough for a legend entry."""
    return [piece for bar in bars for piece in bar.parts if not piece.label and piece.weight >= 1000 * NAMED_FROM]


def _pieces(verdict: RunJudgement) -> list[BarSegment]:
    ordered = sorted(verdict.parts, key=lambda part: place_of(part.owner, part.cause))
    return [_piece(colour_of(part.owner, part.cause), part.ms, part.share, dark=False) for part in ordered]


def _piece(colour: Colour, ms: float, share: float, dark: bool, name: str | None = None, width: float = 1.0) -> BarSegment:
    """Return a part of a bar whose length is ``width`` of the page's longest bar."""
    name = name or colour.label
    time = fmt.part_ms(ms / share / width if share and width else 0.0, ms)  # In the unit of the longest bar.
    label = _if_room(f"{name} {time}", share * width)
    hint = f"{name}: {time}, {fmt.share(share)}"
    return BarSegment(hint, label, round(share * 1000, 1), colour.on(dark), colour.texture, f"{name} {fmt.share(share)}")


def both_steps(
    bars: Sequence[WaterfallBar],
    names: tuple[str, str] = ("A", "B"),
    *,
    dark: bool,
    about: tuple[str, str] = ("", ""),
    ratio: str = "",
) -> list[StepBar]:
    """Return A's and B's step on one scale, useful time first, with the names of the runs.

    ``about`` is "≈ " for a step time that is not measured, and ``ratio`` is B's factor against A.
    """
    ordered = sorted(bars, key=lambda bar: place_of(bar.owner, bar.cause))
    totals = [sum(bar.ms_a for bar in bars), sum(bar.ms_b for bar in bars)]
    longest = max(*totals, 1e-12)
    drawn = []
    sides = zip("AB", names, totals, ("ms_a", "ms_b"), about, ("", ratio), strict=True)
    for letter, name, total, side, unsure, factor in sides:
        named = letter if name == letter else f"{letter} {name}"
        pieces = [
            _with_time(_piece(colour_of(bar.owner, bar.cause), ms, ms / total, dark, bar.label, total / longest), ms, longest)
            for bar in ordered
            if (ms := getattr(bar, side)) > 0
        ]
        time, width = f"{unsure}{fmt.duration_ms(total)}", f"{total / longest:.2%}"
        drawn.append(StepBar(named, time, width, tuple(pieces), ratio=factor))
    return drawn


def _with_time(piece: BarSegment, ms: float, longest: float) -> BarSegment:
    """Return a part with its time alone as the label, if its name does not fit; the legend has the name."""
    time = fmt.part_ms(longest, ms)
    return replace(piece, label=piece.label or (time if ms >= LETTER_SHARE * (len(time) + MARGIN_LETTERS) * longest else ""))


def named_once(drawn: Sequence[StepBar], bars: Sequence[WaterfallBar], *, dark: bool) -> list[BarSegment]:
    """Return the larger parts of ``both_steps`` with their times on both sides, in the order of the bars.

    A part has a label if the bars show its name on a wide page.
    """
    longest = max(sum(bar.ms_a for bar in bars), sum(bar.ms_b for bar in bars), 1e-12)
    labels = {piece.label for step in drawn for piece in step.parts}
    named = []
    for bar in sorted(bars, key=lambda bar: place_of(bar.owner, bar.cause)):
        colour = colour_of(bar.owner, bar.cause)
        written = all(f"{bar.label} {fmt.part_ms(longest, ms)}" in labels for ms in (bar.ms_a, bar.ms_b) if ms)
        if max(bar.ms_a, bar.ms_b) >= NAMED_FROM * longest:
            text = f"{bar.label}: {_both_times(bar, longest)}"
            named.append(BarSegment(text, bar.label if written else "", 0.0, colour.on(dark), colour.texture))
    return named


def _both_times(bar: WaterfallBar, longest: float) -> str:
    """Return a part's time in A and in B, such as "110 → 111 ms", or the only time if one side has none."""
    if not bar.ms_a or not bar.ms_b:
        return f"{fmt.part_ms(longest, bar.ms_a or bar.ms_b)} in {'A' if bar.ms_a else 'B'} alone"
    return f"{fmt.part_ms(longest, bar.ms_a)} → {fmt.part_ms(longest, bar.ms_b)}"


def moves(bars: Sequence[WaterfallBar]) -> list[WaterfallStep]:
    """Return the waterfall from A's step to B's, gains first; each bar begins where the last ended."""
    totals = [sum(bar.ms_a for bar in bars), sum(bar.ms_b for bar in bars)]
    longest = max(*totals, 1e-12)
    shown = sorted((bar for bar in bars if abs(bar.change_ms) >= MIN_BAR_SHARE * longest), key=lambda bar: bar.change_ms)
    rows = [("A", fmt.duration_ms(totals[0]), 0.0, totals[0], MUTED)]
    at = totals[0]
    for bar in shown:
        rows.append((bar.label, change_with_arrow(bar.change_ms), at, at + bar.change_ms, colour_of(bar.owner, bar.cause)))
        at += bar.change_ms
    if abs(totals[1] - at) > 1e-9:
        rows.append(("everything else", change_with_arrow(totals[1] - at), at, totals[1], UNKNOWN))
    rows.append(("B", fmt.duration_ms(totals[1]), 0.0, totals[1], ACCENT))
    scale = max(longest, *(max(row[2], row[3]) for row in rows))
    return [
        WaterfallStep(name, text, f"{min(a, b) / scale:.2%}", f"{abs(b - a) / scale:.2%}", colour.light, colour.texture)
        for name, text, a, b, colour in rows
    ]
