"""The change to make first, on every screen of a run: the Verdict's, with the way there, and why a screen's own numbers lead elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import streamlit as st

from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, current, frame
from sawtooth.app.words import advice, headline, timeline

CHANGES_SHOWN = 3  # of those about one row: the Verdict has all


def show(result: RunResult) -> None:
    """Show the first change as a link to the Verdict, and what it is about where the profiled steps do not show that; nothing where nothing is to change."""
    sentence = advice.first_in_words(result)
    if sentence is None:
        return
    frame.link(
        "verdict", f"First change: {fmt.markdown(sentence, None)}", run=result.manifest.id, icon=":material/arrow_forward:"
    )
    if (why := advice.unseen_here(result)) is not None:
        cards.small(f"{why}.")


def about(
    find: Callable[[Any, Any, Sequence[Finding]], tuple[int, ...]], what: Hashable, rank: RankResult, result: RunResult
) -> list[tuple[int, Finding]]:
    """Return the numbered findings that are about ``what``; ``find`` is one of ``sawtooth.analysis.findings.about_kernel``.

    None of another rank than the lead, whose operations have other numbers.
    """
    if rank is not result.lead:
        return []
    numbered = advice.numbered(result)
    findings = [finding for _, finding in numbered]
    known = tuple((finding.rule, finding.title) for finding in findings)
    return [numbered[place] for place in _places(find.__name__, what, rank, known, find, findings)]


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs={RankResult: current.key_of})
def _places(
    asked: str, what: Hashable, rank: RankResult, known: tuple[tuple[str, str], ...], _find: Any, _findings: Sequence[Finding]
) -> tuple[int, ...]:
    with current.opened(rank) as view:
        return tuple(_find(view, what, _findings))


def link_changes(about: Sequence[tuple[int, Finding]], result: RunResult, *, alone: bool = True) -> None:
    """Show the first of some numbered findings, each with what it brings as a link to the Verdict; ``alone``: and which change comes before all of them."""
    for number, finding in about[:CHANGES_SHOWN]:
        gain = f": {gained}" if (gained := timeline.gain(finding)) else ""
        label = f"Change {number}: {fmt.markdown(headline.action(finding))}{gain}"
        frame.link("verdict", label, run=result.manifest.id, icon=":material/arrow_forward:")
    if alone and (before := advice.comes_before(result, [finding for _, finding in about])) is not None:
        cards.small(before)


def show_with(about: Sequence[tuple[int, Finding]], result: RunResult) -> None:
    """Show numbered findings about what a screen leads with, below the first change where that is none of them: the screen's numbers lead elsewhere."""
    if apart := advice.first(result) not in about:
        show(result)
    link_changes(about, result, alone=not apart)
