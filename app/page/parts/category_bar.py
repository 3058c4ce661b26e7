"""GPU work as one bar whose parts are categories of operations, coloured by owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.roofline import MOSTLY
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import poster_bars
from sawtooth.app.charts.poster_bars import LETTER, BarSegment, StepBar
from sawtooth.app.theme import OWNERS, colour_of
from sawtooth.app.words import categories

_HTML = templates.pieces("poster.html")
OWNER_OF = {
    "communication": "exposed_comm",
    "memcpy": "exposed_memcpy",
    "memset": "memset",
}  # the owner of their time while nothing computes in parallel
ORDER = tuple(OWNERS)
EDGES = 2  # letters: room around a name, so that it is not cut off


def show(rows: pd.DataFrame, *, dark: bool) -> None:
    """Show GPU work by category.

    ``rows`` are those of ``sawtooth.analysis.tables.kernels.kernels`` by category.
    """
    parts = pieces(rows, dark=dark)
    if len(parts) > 1:
        bar = StepBar("GPU work", fmt.duration_ms(float(rows["ms"].sum())), "100%", tuple(parts))
        with st.container(key="categories"):
            st.html(_HTML.drawn([bar], once_a_colour(poster_bars.unlabelled([bar]))))


def once_a_colour(unnamed: Sequence[BarSegment]) -> list[BarSegment]:
    """Return the entries of a legend, with one entry per colour.

    A legend cannot distinguish parts of the same colour, so one entry names all of them in their order.
    """
    alike: dict[tuple[str, str], list[BarSegment]] = {}
    for piece in unnamed:
        alike.setdefault((piece.colour, piece.texture), []).append(piece)
    return [
        replace(first, hint=f"from the left: {'; '.join(piece.hint for piece in same)}") if more else first
        for same in alike.values()
        for first, *more in [same]
    ]


def pieces(rows: pd.DataFrame, *, dark: bool) -> list[BarSegment]:
    """Return a part for each category, ordered by owner and then by time, the largest first.

    The order of owners is: tensor cores, other compute, memory sets, communication, copies.
    """
    owned = [(_owner(row), row) for row in rows.to_dict("records") if row["total_ns"]]
    owned.sort(key=lambda one: (ORDER.index(one[0]), -one[1]["total_ns"]))
    return [_piece(owner, str(row["name"]), float(row["ms"]), float(row["share"]), dark) for owner, row in owned]


def _owner(row: dict[str, object]) -> str:
    on_tensor_cores = pd.to_numeric(row.get("tensor_core_ns")) >= MOSTLY * pd.to_numeric(row["total_ns"])
    return OWNER_OF.get(str(row["name"]), "tensor_core_compute" if on_tensor_cores else "other_compute")


def _piece(owner: str, name: str, ms: float, share: float, dark: bool) -> BarSegment:
    text = f"{fmt.clean(categories.named(name), 40)} {fmt.share(share)}"
    on = " on tensor cores" if owner == "tensor_core_compute" else ""
    colour = colour_of(owner)
    label = text if share >= LETTER * (len(text) + EDGES) else ""
    return BarSegment(f"{text}, {fmt.duration_ms(ms)}{on}", label, round(1000 * share, 1), colour.on(dark), colour.texture)
