"""Links from the screens of a run to the changes on the Verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.app import format as fmt
from sawtooth.app import places
from sawtooth.app.page import cards, current_result, frame
from sawtooth.app.page.address import OPEN
from sawtooth.app.words import advice, headline, timeline
from sawtooth.app.words import staircase as staircase_words

CHANGES_SHOWN = 3  # Number of changes about one row; the Verdict shows all.


def show(result: RunResult) -> None:
    """Show the first change as a link to the Verdict; shows nothing if there is no change.

    If the profiled steps do not show the problem, a note says why.
    """
    sentence = advice.first_in_words(result)
    if sentence is None:
        return
    frame.link(
        "verdict", f"First change: {fmt.markdown(sentence, None)}", run=result.manifest.id, icon=":material/arrow_forward:"
    )
    if (why := advice.unprofiled_topic(result)) is not None:
        cards.small(f"{why}.")


def link_changes(about: Sequence[tuple[int, Finding]], result: RunResult, *, alone: bool = True) -> None:
    """Show the first numbered findings with their gains, as links to the Verdict.

    With ``alone``, also name the change that comes before all of them.
    """
    bars = _bars(result) if about else {}
    for number, finding in about[:CHANGES_SHOWN]:
        gain = f": {gained}" if (gained := timeline.gain(finding)) else ""
        label = f"{'First change' if number == 1 else f'Change {number}'}: {fmt.markdown(headline.action(finding))}{gain}"
        frame.link("verdict", label, icon=":material/arrow_forward:", **_query(finding, result, bars))
    if alone and (before := advice.note_on_first_change(result, [finding for _, finding in about])) is not None:
        cards.small(before)


def column() -> Any:
    """Return the table column of ``addresses``."""
    about = "Changes of the Verdict that are about it"
    return st.column_config.LinkColumn("Changes", display_text="#(.*)$", help=about, width=80)


def addresses(about_rows: Iterable[Sequence[tuple[int, Finding]]], result: RunResult) -> list[str | None]:
    """Return for each row the address of its first finding on the Verdict, with all numbers after its "#".

    The table of a screen shows only these numbers. None for a row without findings.
    """
    bars = _bars(result)
    return [
        f"{places.address('verdict', _query(about[0][1], result, bars))}#{','.join(str(number) for number, _ in about)}"
        if about
        else None
        for about in about_rows
    ]


def _bars(result: RunResult) -> dict[str, int]:
    """Return the places of the Verdict's bars by rule; an address opens a bar by its place."""
    stairs = staircase_words.of_run(result, current_result.staircase(result))
    return {rule: place for place, rule in enumerate(stairs.changes, start=1)} if stairs is not None else {}


def _query(finding: Finding, result: RunResult, bars: Mapping[str, int]) -> dict[str, str]:
    return {"run": result.manifest.id, **({OPEN: str(bars[finding.rule])} if finding.rule in bars else {})}


def show_with(about: Sequence[tuple[int, Finding]], result: RunResult) -> None:
    """Show links to the numbered findings ``about`` the main row of a screen.

    If the run's first change is not among them, it is shown above them, because the screen's numbers suggest something else.
    """
    with st.container(horizontal=advice.unprofiled_topic(result) is None, gap="medium"):  # A note needs a line of its own.
        if is_separate := advice.first(result) not in about:
            show(result)
        link_changes(about, result, alone=not is_separate)
