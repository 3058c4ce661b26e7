"""The operators that take most as bars, and what to do about one of them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings import about_operator
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts.losses import LostBar
from sawtooth.app.page import cards, current, frame
from sawtooth.app.page.parts import kernel_drawer
from sawtooth.app.theme import ACCENT
from sawtooth.app.words import advice

SHOWN = 10


def bars(rows: pd.DataFrame, order: str, heading: str, *, dark: bool) -> None:
    """Show the first SHOWN of ``rows``, which are sorted by ``order`` (a column of ms), each with a bar and its share of all of them."""
    whole = float(rows[order].sum())
    top = rows[rows[order] > 0].head(SHOWN)
    if top.empty:
        return
    largest = float(top[order].iloc[0])
    lines = [(_name(row), fmt.duration_ms(row[order]), fmt.share(row[order] / whole)) for row in top.to_dict("records")]
    drawn = [LostBar(f"{ms / largest:.2%}", ACCENT.on(dark)) for ms in top[order].astype(float)]
    cards.ranked(("Operator", heading, "Share"), lines, drawn, "The operators that take most")


def _name(row: dict[Any, Any]) -> str:
    shapes = fmt.clean(str(row["shapes"]), 40) if row.get("shapes") else ""
    return f"{fmt.clean(str(row['name']), 50)}{f' ({shapes})' if shapes else ''}"


def next_step(row: pd.Series, rank: RankResult, result: RunResult) -> None:
    """Say which change is about what the operator launches, else what it takes, and where to look."""
    name = str(row["name"])
    cards.title(f"What to do about {fmt.clean(name, 60)}")
    numbered = advice.numbered(result)
    known = tuple((finding.rule, finding.title) for _, finding in numbered)
    about = _about(name, rank, known, [finding for _, finding in numbered]) if rank is result.lead else ()
    kernel_drawer.link_changes([numbered[place] for place in about], result)
    if about:
        return
    if not row["gpu_self_ms"]:
        cards.text("It launches nothing itself: its time is the host's, and costs where the GPU waits for the host.")
        frame.link("idle", "What the GPU waits for", run=result.manifest.id, icon=":material/hourglass_empty:")
        return
    cards.text(unnamed(float(row["gpu_self_ms"]), rank.metrics["step_time_ms"].value))
    frame.link("efficiency", "How near operators come to the peak", run=result.manifest.id, icon=":material/speed:")


def unnamed(ms: float, step_ms: float | None) -> str:
    """Return what there is to gain at most from an operator whose launches, of ``ms`` per profiled step, no finding is about."""
    share = f", {fmt.share(ms / step_ms)} of a profiled step" if step_ms else ""
    if step_ms and ms < kernel_drawer.WORTH_NAMING * step_ms:
        return f"Nothing to gain here: what it launches takes {fmt.duration_ms(ms)}{share}."
    return f"No finding is about what it launches: {fmt.duration_ms(ms)}{share}."


@st.cache_data(max_entries=128, show_spinner=False, hash_funcs={RankResult: current.key_of})
def _about(name: str, rank: RankResult, known: tuple[tuple[str, str], ...], _findings: list[Finding]) -> tuple[int, ...]:
    with current.opened(rank) as view:
        return about_operator(view, name, _findings)
