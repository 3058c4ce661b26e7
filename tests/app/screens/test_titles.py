"""Tests of two rules for all pages: titles have no full stop, and ≈ stands before every estimate."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.staircase import Staircase
from sawtooth.app import format as fmt
from sawtooth.app.places import SCREENS
from sawtooth.app.words import headline, staircase
from sawtooth.app.words.answer import title
from sawtooth.app.words.answer.cost_facts import CostFacts, facts
from tests.support.pages import headline_of, opened, staircase_of, words_of
from tests.support.stairs import stairs_of

TITLE = re.compile(r"<h[12][^>]*>(.*?)</h[12]>", re.DOTALL)


@pytest.mark.parametrize("screen", [screen.name for screen in SCREENS])
def test_titles_have_no_full_stop(loop: str, screen: str) -> None:
    test = opened(screen, loop)
    titles = [re.sub(r"<[^>]+>", "", found).strip() for found in TITLE.findall(words_of(test))]
    if staircase_of(test) is not None:
        titles.append(headline_of(test))
    assert titles and not [text for text in titles if text.endswith(".")]


def test_a_title_loses_only_its_full_stop() -> None:
    assert fmt.as_title("The GPU waits 5.0 ms.") == "The GPU waits 5.0 ms"
    assert [fmt.as_title(text) for text in ("Why?", "Being analysed …", "And so on...")] == [
        "Why?",
        "Being analysed …",
        "And so on...",
    ]


def test_an_estimated_step_has_the_same_sign_before_and_after() -> None:
    """The headline and the bar mark the same times as estimates.

    A headline with "100 → ≈ 50 ms" does not stand beside a bar with "≈ 100 ms".
    """
    result, stairs = stairs_of((50.0, 45.0, 55.0))
    measured, _, _ = (piece.replace("\xa0", " ") for piece in _title(result, stairs))
    estimated, bar, saved = (piece.replace("\xa0", " ") for piece in _title(_estimated(result), stairs))
    assert measured.startswith("Use the fused optimizer: 100 → ≈ 50.0 ms")
    assert estimated.startswith("Use the fused optimizer: ≈ 100 → ≈ 50.0 ms") and bar == "≈ 100 ms"
    assert saved == "24 → ≈ 12.0 h", "a day has exactly 24 hours"


def _title(result: RunResult, stairs: Staircase) -> tuple[str, str, str]:
    drawn = staircase.picture(result, stairs, CostFacts())
    hours = dict(facts(result, stairs, 1, CostFacts()))["A training that takes a day now"]
    return title.title(stairs, 1, result).text, drawn["states"]["0"]["text"], hours


def _estimated(result: RunResult) -> RunResult:
    best = replace(result.lead.best, source="telemetry", reading=Reading(100.0, trust="caution", low=90.0, high=110.0))
    lead = replace(result.lead, best=best)
    changed = replace(result, ranks=[lead], lead=lead)
    assert headline.about_now(changed) == fmt.APPROXIMATELY
    return changed
