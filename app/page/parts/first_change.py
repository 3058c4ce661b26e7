"""Links from the screens of a run to the changes on the Verdict."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, frame
from sawtooth.app.words import advice, headline, timeline

CHANGES_SHOWN = 3  # number of changes about one row; the Verdict shows all


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
    if (why := advice.unseen_here(result)) is not None:
        cards.small(f"{why}.")


def link_changes(about: Sequence[tuple[int, Finding]], result: RunResult, *, alone: bool = True) -> None:
    """Show the first numbered findings with their gains, as links to the Verdict.

    With ``alone``, also name the change that comes before all of them.
    """
    for number, finding in about[:CHANGES_SHOWN]:
        gain = f": {gained}" if (gained := timeline.gain(finding)) else ""
        label = f"{'First change' if number == 1 else f'Change {number}'}: {fmt.markdown(headline.action(finding))}{gain}"
        frame.link("verdict", label, run=result.manifest.id, icon=":material/arrow_forward:")
    if alone and (before := advice.comes_before(result, [finding for _, finding in about])) is not None:
        cards.small(before)


def show_with(about: Sequence[tuple[int, Finding]], result: RunResult) -> None:
    """Show links to the numbered findings ``about`` the main row of a screen.

    If the run's first change is not among them, it is shown above them, because the screen's numbers suggest something else.
    """
    if apart := advice.first(result) not in about:
        show(result)
    link_changes(about, result, alone=not apart)
