"""Small elements every screen shares: the sentence that answers, a metric with its trust, what stands where nothing is.

Their texts may hold strangers' names: the templates escape all of them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.charts.losses import LostBar
from sawtooth.app.theme import ACCENT, MUTED

_ASSETS = Path(__file__).resolve().parents[1] / "assets"
ICON = str(_ASSETS / "icon.svg")
LOGO = str(_ASSETS / "logo.svg")

SPARK_PX = 240, 44  # width and height

_HTML = templates.pieces("cards.html")


def style() -> None:
    """Put the app's few style rules on the page, and the logo."""
    st.html(templates.FOLDER / "poster.css")  # first: the page's rules for narrow screens come after it
    st.html(templates.FOLDER / "page.css")
    if st.context.theme.type == "dark":  # Streamlit writes white on the accent, which is light there: 2.8:1
        st.html(
            "<style>[data-testid^=stBaseButton-primary]:not(:disabled), [data-testid=stMultiSelect] [data-tag], [data-testid=stMultiSelect] [data-tag] :is(span, button) { color: #0B1A26 !important; } "
            ".st-caution span { color: #F2C14E; }</style>"
        )
    st.logo(LOGO, size="large")


def headline(sentence: str, under: str | None = None) -> None:
    """Show the answer of a screen in its first line; ``under`` is the second, quieter one."""
    st.html(_HTML.headline(sentence, under))


def title(finding: str) -> None:
    """Show the title of a part: its finding in words with a number."""
    st.html(_HTML.title(finding))


def numbered(number: int, finding: str) -> None:
    """Show the title of a numbered part, its number in a badge that no digit of the title can fuse with."""
    st.html(_HTML.numbered(number, finding))


def small(text: str) -> None:
    """Show a line of small print."""
    st.html(_HTML.line(text, "small"))


def text(sentence: str) -> None:
    """Show a sentence."""
    st.html(_HTML.line(sentence, "text"))


def strong(sentence: str) -> None:
    """Show a sentence that answers, among others on the page that do."""
    st.html(_HTML.line(sentence, "strong"))


def caution(sentence: str) -> None:
    """Show a sentence about what limits trust, marked in amber."""
    st.html(_HTML.caution(sentence))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, figures: bool = False) -> None:
    """Show a short table whose cells wrap; ``figures``: every column but the first holds numbers. ``caption`` names it for screen readers."""
    st.html(_HTML.table(headers, rows, caption, figures))


def ranked(headers: Sequence[str], rows: Sequence[Sequence[str]], bars: Sequence[LostBar], caption: str) -> None:
    """Show a table whose second column, the number that ranks the rows, is drawn as a bar in each."""
    st.html(_HTML.ranked(headers, rows, bars, caption))


def paragraph(sentence: str) -> None:
    """Show a paragraph."""
    st.html(_HTML.paragraph(sentence))


def definition(term: str, sentence: str) -> None:
    """Show what a term means."""
    st.html(_HTML.definition(term, sentence))


def legend(entries: Sequence[LegendEntry]) -> None:
    """Show what the colours of a chart mean; it wraps on a narrow page."""
    if entries:
        st.html(_HTML.legend(entries))


def section_label(text: str) -> None:
    """Show a quiet heading of a group of links."""
    st.html(_HTML.line(text, "section"))


def tags(names: Sequence[str]) -> None:
    """Show short labels in a row."""
    if names:
        st.html(_HTML.tags(names))


def numbers(pairs: Sequence[tuple[str, str]]) -> None:
    """Show a few labelled numbers in a row that wraps."""
    if pairs:
        st.html(_HTML.numbers(pairs))


def metric_card(
    key: str, value: Reading, *, note: str | None = None, good: float | None = None, badge: bool = True, about: bool = False
) -> None:
    """Show metric ``key`` with its definition on hover, and why it is missing or, with ``badge``, not to be trusted.

    With ``good``, a share that good runs reach, a bar shows how near this one comes; with ``about``, what is not fully trusted has its ≈.
    """
    metric = METRICS[key]
    help_text = f"{metric.definition} Source: {metric.source}"
    if value.notes:
        help_text += " — " + " ".join(value.notes)
    with st.container(border=True, height="stretch"):
        text = fmt.reading(key, value)
        unsure = about and value.value is not None and value.trust != "ok" and not text.startswith("<")
        st.metric(metric.label, f"≈\u00a0{text}" if unsure else text, help=fmt.markdown(help_text, None))
        if value.value is not None and good is not None:
            _share_bar(value.value, good)
        if value.why_missing:
            small(f"Not known: {value.why_missing}")
        elif note:
            small(note)
        if badge:
            trust_badge(value)


def _share_bar(share: float, good: float) -> None:
    words = f"{fmt.share(share)}; good runs reach {fmt.share(good)}"
    st.html(_HTML.share_bar(words, f"{min(max(share, 0.0), 1.0):.1%}", f"{good:.1%}"))


def trust_badge(value: Reading) -> None:
    """Show an amber badge with the reason where a number is not fully trusted; nothing where it is, or where there is none."""
    if value.value is not None and value.trust != "ok":
        reason = " ".join(value.notes) or "Some input of this number is incomplete."
        label = "caution" if value.trust == "caution" else "not usable"
        st.badge(label, icon=":material/warning:", color="orange", help=fmt.markdown(reason, None))


def empty_state(what: str, why: str, code: str | None = None, language: str | None = None) -> None:
    """Say what is missing, why, and the line of code that would bring it."""
    with st.container(border=True):
        title(what)
        paragraph(why)
        if code:
            st.code(code, language=language)


def problem(what: str, sentence: str) -> None:
    """Say in one sentence what went wrong and what to do."""
    with st.container(border=True):
        st.html(_HTML.problem(what, sentence))


def sparkline(values: Sequence[float | None], *, alt: str, dark: bool) -> None:
    """Show a line of shares (0 to 1) without axes; a None breaks the line. ``alt`` says in words what it shows."""
    st.html(_HTML.picture(_spark_address(values, dark), *SPARK_PX, alt))


def _spark_address(values: Sequence[float | None], dark: bool) -> str:
    """Return the line as a picture in a ``data:`` address."""
    width, height = SPARK_PX
    step = width / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{i * step:.1f},{(height - 3) - min(max(value, 0.0), 1.0) * (height - 6):.1f}")
    svg = templates.render(
        "sparkline.svg",
        lines=[" ".join(points) for points in lines if len(points) > 1],
        width=width,
        height=height,
        colour=ACCENT.on(dark),
        base_colour=MUTED.on(dark),
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
