"""GPU time by phase of a step: one bar each for forward, loss, backward, optimizer and copies.

The parts of a bar are categories.
"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.recorded.phases import PHASE_ORDER
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts.poster_bars import BarSegment, StepBar
from sawtooth.app.page import cards
from sawtooth.app.page.parts import category_bar
from sawtooth.app.theme import colour_of

_HTML = templates.pieces("poster.html")
IN_WORDS = {"forward": "forward", "loss": "the loss", "backward": "backward", "optimizer": "the optimizer", "copies": "copies"}
COLOURS = {
    "tensor_core_compute": "on tensor cores",
    "other_compute": "other compute",
    "exposed_comm": "communication",
    "exposed_memcpy": "copies",
    "memset": "memory sets",
}  # by owner, with the colours of category_bar
DRAWN_FROM = 0.1  # share of GPU work: the bar of a smaller phase would be a thin line in an empty row
METHOD = (
    "GPU operations of the counted steps, each counted once, by where they were launched. Backward is what autograd's nodes launched, "
    "recomputed activations included. The optimizer is what ran inside its step. A loss is known by PyTorch's own operators. Copies and memory sets "
    "are those outside backward and optimizer. Forward is the rest, with a loss written by hand. Durations are added up, though two streams may "
    "run side by side."
)


def show(rows: pd.DataFrame, *, dark: bool) -> None:
    """Show GPU work by phase.

    ``rows`` are at least one row of ``sawtooth.analysis.findings.recorded.phases.work_by_phase``.
    """
    drawn = _drawn(rows)
    with st.container(key="phases", gap="xsmall"):
        st.html(_HTML.bars(bars(drawn, dark=dark), legend(drawn, dark=dark), "GPU work by phase"))
        if small := in_words(rows):
            cards.small(small)


def bars(rows: pd.DataFrame, *, dark: bool) -> list[StepBar]:
    """Return a bar for each phase, in the order of a step, with its share of GPU work.

    The longest phase has the full width.
    """
    longest = float(rows.groupby("phase")["share"].sum().max())
    return [
        StepBar(
            phase.capitalize(),
            f"{fmt.duration_ms(float(of['ms'].sum()))} · {fmt.share(float(of['share'].sum()))}",
            f"{float(of['share'].sum()) / longest:.2%}".replace("100.00%", "100%"),
            tuple(category_bar.pieces(of, dark=dark)),
        )
        for phase, of in ((phase, rows[rows["phase"] == phase]) for phase in PHASE_ORDER)
        if of["total_ns"].sum()
    ]


def in_words(rows: pd.DataFrame) -> str:
    """Return the times of the phases without a bar, or "" if there are none."""
    left = rows.drop(_drawn(rows).index).groupby("phase")[["ms", "share"]].sum().sort_values("ms", ascending=False)
    named = [
        f"{IN_WORDS[str(phase)]} {fmt.duration_ms(row['ms'])} ({fmt.share(row['share'])})"
        for phase, row in left.iterrows()
        if row["ms"]
    ]
    return f"Beside these: {', '.join(named)}." if named else ""


def _drawn(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the phases that have a bar."""
    return rows[rows.groupby("phase")["share"].transform("sum") >= DRAWN_FROM]


def legend(rows: pd.DataFrame, *, dark: bool) -> list[BarSegment]:
    """Return a legend entry for each colour in the bars."""
    drawn = {part.colour for part in category_bar.pieces(rows, dark=dark)}
    named = [(name, colour_of(owner)) for owner, name in COLOURS.items()]
    return [BarSegment(name, "", 0.0, colour.on(dark), colour.texture) for name, colour in named if colour.on(dark) in drawn]


def sentence(rows: pd.DataFrame) -> str | None:
    """Return a sentence with the two largest phases; None if the trace has no phases."""
    shares = rows.groupby("phase")["share"].sum().sort_values(ascending=False, kind="stable")
    if shares.empty:
        return None
    first, *others = [(IN_WORDS[str(phase)], fmt.share(share)) for phase, share in shares.items()]
    name = f"{first[0][:1].upper()}{first[0][1:]}"
    beside = f", {others[0][0]} {others[0][1]}" if others else ""
    return f"{name} takes {first[1]} of GPU work{beside}"
