"""Show the answers of two compared runs side by side if they train different models.

What differs between two models is not a change, so nothing is said about changes.
"""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import templates
from sawtooth.app.charts import poster_bars
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.page.runs import listing
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import limits

_POSTER = templates.pieces("poster.html")
TITLE = "What to change in each"


def show(comparison: Comparison) -> None:
    """Show for each side's first run what to change, where its step time goes, and a link to its Verdict."""
    cards.title(TITLE)
    places = panel.two_columns()
    for place, side, name in zip(places, (comparison.a, comparison.b), words.names(comparison), strict=True):
        manifest = side.runs[0].manifest
        about = listing.known(manifest)
        with place, st.container(border=True, height="stretch", gap="xsmall"):
            cards.small(name)
            if about.headline:
                cards.show_bold(about.headline)
            if about.parts:
                st.html(_POSTER.narrow(poster_bars.of_shares(about.parts, dark=frame.is_dark()), listing.goes_to(about)))
            frame.link("verdict", "See its verdict", run=manifest.id, icon=":material/gavel:")
    for sentence in limits.sentences(comparison, profiles=False):
        cards.caution(sentence)
