"""Tests of templates: each escapes its values, and a missing name is an error."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from sawtooth.app import templates
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.page.cards import Definition, NarrowRow

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x07"
SAFE = "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;  "
CARDS = templates.pieces("cards.html")


def macros() -> list[str]:
    return sorted(name for name, macro in vars(CARDS).items() if getattr(macro, "arguments", ()))


@pytest.mark.parametrize("name", macros())
def test_every_card_escapes_its_values(name: str) -> None:
    values = {
        "headers": [HOSTILE],
        "rows": [[HOSTILE] * 4] if name == "changes" else [[HOSTILE]],
        "pieces": [("text", HOSTILE)],
        "lines": [NarrowRow(HOSTILE, HOSTILE, True, HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
        "names": [HOSTILE],
        "pairs": [(HOSTILE, HOSTILE)],
        "definitions": [Definition(HOSTILE, HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)])],
        "entries": [LegendEntry(HOSTILE, HOSTILE)],
        "listed": [(HOSTILE, [(HOSTILE, HOSTILE, HOSTILE)], True)],
    }
    macro = getattr(CARDS, name)
    shown = macro(*(values.get(argument, HOSTILE) for argument in macro.arguments))
    assert SAFE.rstrip() in shown
    assert "<img src=x" not in shown
    assert "\u202e" not in shown and "\x07" not in shown


def test_every_template_of_a_card_is_tested() -> None:
    assert {"headline", "table", "legend", "problem"} <= set(macros())


def test_quoted_code_is_shown_as_code() -> None:
    reported = "no calls (`with_stack=<b>`)"
    for shown in (CARDS.headline([("text", reported)], None), CARDS.line(reported, "small"), CARDS.numbered(1, reported)):
        assert "(<code>with_stack=&lt;b&gt;</code>)" in shown


def test_a_missing_value_of_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        templates.render("login.html", sentence="")


def test_the_page_without_a_login_says_how_to_get_one() -> None:
    page = templates.render("login.html", sentence="", target=HOSTILE)
    assert "<form" in page and "Ask them for an invitation" in page and 'role="alert"' not in page
    assert '<p class="problem" role="alert">No.</p>' in templates.render("login.html", sentence="No.", target="/")


def test_a_refusal_that_no_token_helps_asks_for_none() -> None:
    page = templates.render("refusal.html", sentence=HOSTILE)
    assert "<form" not in page
    assert SAFE.rstrip() in page


def test_code_in_a_sentence_is_shown_as_code_and_the_rest_as_text() -> None:
    page = templates.render("refusal.html", sentence="Run `a < b`, not <b>.")
    assert "Run <code>a &lt; b</code>, not &lt;b&gt;." in page


def test_a_wide_table_of_a_report_scrolls_without_cutting_names() -> None:
    """On a phone, columns are wide enough for names.

    Ten columns of 35 px would break names letter by letter.
    """
    parts = (templates.FOLDER / "report_parts.html").read_text(encoding="utf-8")
    style = (templates.FOLDER / "report.css").read_text(encoding="utf-8")
    assert parts.count("<table") == parts.count('<div class="scroll"><table') == 1
    assert ".scroll { overflow-x: auto; }" in style and ".words td:first-child { min-width: 8rem; }" in style


def test_a_long_name_may_wrap() -> None:
    assert "a_<wbr>b&lt;c" in CARDS.table(["rule"], [["a_b<c"]], "")


def test_code_keeps_its_lines() -> None:
    # its sign is drawn, not copied
    assert "<del>    if a &lt; b:</del>" in templates.pieces("poster.html").diff(["-     if a < b:"])
