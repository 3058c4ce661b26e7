"""Small elements every screen shares: the sentence that answers, a metric with its trust, what stands where nothing is.

Texts given to these functions may hold strangers' names: everything is escaped here.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from analysis.metrics import METRICS, Reading
from app import format as fmt
from app.theme import ACCENT, MUTED

_ASSETS = Path(__file__).with_name("assets")
ICON = str(_ASSETS / "icon.svg")
LOGO = str(_ASSETS / "logo.svg")

_STYLE = """<style>
[data-testid="stMainBlockContainer"] { padding-top: 2.75rem; padding-bottom: 3rem; max-width: 1500px; }
[data-testid="stSidebar"] [data-testid="stVerticalBlock"] { gap: 0.15rem; }
[data-testid="stSidebar"] [data-testid="stPageLink"] a { padding-top: 0.15rem; padding-bottom: 0.15rem; }
.st-key-run_cards [data-testid="stPageLink"] a { padding-left: 0; }
.st-key-run_cards [data-testid="stPageLink"] a p { font-size: 1.1rem; white-space: normal; overflow-wrap: anywhere; }
.st-headline { font-size: 1.65rem; line-height: 1.25; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
.st-under { font-size: 1rem; margin: 0.25rem 0 0; opacity: 0.8; overflow-wrap: anywhere; }
.st-title { font-size: 1.1rem; font-weight: 600; margin: 0.5rem 0 0; overflow-wrap: anywhere; }
.st-small { font-size: 0.875rem; opacity: 0.75; margin: 0; overflow-wrap: anywhere; }
.st-text { margin: 0.2rem 0; overflow-wrap: anywhere; }
.st-caution { margin: 0.2rem 0; font-size: 0.875rem; overflow-wrap: anywhere; }
.st-caution span { color: #B7791F; }
.st-table { width: 100%; border-collapse: collapse; font-size: 0.9rem; }
.st-table th { text-align: left; font-weight: 600; opacity: 0.75; border-bottom: 2px solid color-mix(in srgb, currentColor 25%, transparent); }
.st-table th, .st-table td { padding: 0.4rem 0.9rem 0.4rem 0; vertical-align: top; overflow-wrap: anywhere; }
.st-table td { border-bottom: 1px solid color-mix(in srgb, currentColor 13%, transparent); }
.st-table td:first-child { font-weight: 600; min-width: 8.5rem; }
.st-table td:nth-child(2) { min-width: 4.5rem; }
[data-testid="stSidebar"] [data-testid="stSelectbox"] { margin: 0.6rem 0 0.2rem; }
.st-section { font-size: 0.75rem; letter-spacing: 0.05em; text-transform: uppercase; opacity: 0.65; margin: 0.9rem 0 0.2rem; font-weight: 600; }
.st-tag { display: inline-block; font-size: 0.75rem; padding: 0.05rem 0.5rem; margin: 0 0.3rem 0.2rem 0; border-radius: 1rem;
  border: 1px solid color-mix(in srgb, currentColor 30%, transparent); overflow-wrap: anywhere; }
.st-numbers { padding: 0 !important; display: flex; flex-wrap: wrap; gap: 0.15rem 1.4rem; margin: 0; font-variant-numeric: tabular-nums; }
.st-numbers div { min-width: 4.5rem; }
.st-numbers dt { font-size: 0.75rem; opacity: 0.7; margin: 0; font-weight: 400; }
.st-numbers dd { font-size: 1.1rem; font-weight: 600; margin: 0; }
.st-legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; font-size: 0.8rem; opacity: 0.9; }
.st-legend i { display: inline-block; width: 0.75rem; height: 0.75rem; border-radius: 2px; margin-right: 0.35rem; vertical-align: -0.08rem; }
.st-legend i.hatched { background-image: repeating-linear-gradient(45deg, transparent 0 2px, rgb(255 255 255 / 60%) 2px 4px); }
.st-bar { position: relative; height: 6px; border-radius: 3px; background: color-mix(in srgb, currentColor 14%, transparent); margin: 2px 0 4px; }
.st-bar i { position: absolute; inset: 0 auto 0 0; border-radius: 3px; background: var(--st-primary-color, #0072B2); }
.st-bar b { position: absolute; top: -3px; width: 2px; height: 12px; background: currentColor; opacity: 0.75; }
</style>"""


def style() -> None:
    """Put the app's few style rules on the page, and the logo."""
    st.html(_STYLE)
    st.logo(LOGO, size="large")


def headline(sentence: str, under: str | None = None) -> None:
    """Show the answer of a screen in its first line; ``under`` is the second, quieter one."""
    second = f'<p class="st-under">{html.escape(under)}</p>' if under else ""
    st.html(f'<h1 class="st-headline">{html.escape(sentence)}</h1>{second}')


def title(finding: str) -> None:
    """Show the title of a part: its finding in words with a number."""
    st.html(f'<h2 class="st-title">{html.escape(finding)}</h2>')


def small(text: str) -> None:
    """Show a line of small print."""
    st.html(f'<p class="st-small">{html.escape(text)}</p>')


def text(sentence: str) -> None:
    """Show a sentence."""
    st.html(f'<p class="st-text">{html.escape(sentence)}</p>')


def caution(sentence: str) -> None:
    """Show a sentence about what limits trust, marked in amber."""
    st.html(f'<p class="st-caution"><span aria-hidden="true">▲</span> {html.escape(sentence)}</p>')


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
    """Show a table whose cells wrap, for words; tables of numbers are dataframes. ``caption`` names it for screen readers."""
    head = "".join(f'<th scope="col">{html.escape(h)}</th>' for h in headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell).replace('_', '_<wbr>')}</td>" for cell in row) + "</tr>" for row in rows
    )
    st.html(
        f'<table class="st-table" aria-label="{html.escape(caption)}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def section_label(text: str) -> None:
    """Show a quiet heading of a group of links."""
    st.html(f'<p class="st-section">{html.escape(text)}</p>')


def tags(names: Sequence[str]) -> None:
    """Show short labels in a row."""
    if names:
        st.html("".join(f'<span class="st-tag">{fmt.plain(name, 40)}</span>' for name in names))


def numbers(pairs: Sequence[tuple[str, str]]) -> None:
    """Show a few labelled numbers in a row that wraps."""
    if pairs:
        items = "".join(f"<div><dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd></div>" for label, value in pairs)
        st.html(f'<dl class="st-numbers">{items}</dl>')


def metric_card(key: str, value: Reading, *, note: str | None = None, good: float | None = None) -> None:
    """Show metric ``key`` with its definition on hover, and why it is missing or not to be trusted.

    With ``good``, a share that good runs reach, a bar shows how near this one comes.
    """
    metric = METRICS[key]
    help_text = f"{metric.definition} Source: {metric.source}"
    if value.notes:
        help_text += " — " + " ".join(value.notes)
    with st.container(border=True, height="stretch"):
        st.metric(metric.label, fmt.reading(key, value), help=fmt.markdown(help_text, None))
        if value.value is not None and good is not None:
            _share_bar(value.value, good)
        if value.why_missing:
            small(f"Not known: {value.why_missing}")
        elif note:
            small(note)
        trust_badge(value)


def _share_bar(share: float, good: float) -> None:
    words = f"{fmt.share(share)}; good runs reach {fmt.share(good)}"
    st.html(
        f'<div class="st-bar" role="img" aria-label="{html.escape(words)}" title="{html.escape(words)}">'
        f'<i style="width:{min(max(share, 0.0), 1.0):.1%}"></i><b style="left:{good:.1%}"></b></div>'
    )


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
        st.html(f"<p>{html.escape(why)}</p>")
        if code:
            st.code(code, language=language)


def problem(what: str, sentence: str) -> None:
    """Say in one sentence what went wrong and what to do."""
    with st.container(border=True):
        st.html(f'<div role="alert"><h2 class="st-title">{html.escape(what)}</h2><p>{html.escape(sentence)}</p></div>')


def sparkline(values: Sequence[float | None], *, alt: str, dark: bool, width: int = 240, height: int = 44) -> None:
    """Show a line of shares (0 to 1) without axes; a None breaks the line. ``alt`` says in words what it shows."""
    st.html(
        f'<img src="{_spark_svg(values, dark, width, height)}" width="{width}" height="{height}" style="max-width:100%;height:auto" alt="{html.escape(alt)}">'
    )


def _spark_svg(values: Sequence[float | None], dark: bool, width: int, height: int) -> str:
    step = width / max(len(values) - 1, 1)
    parts: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{i * step:.1f},{(height - 3) - min(max(value, 0.0), 1.0) * (height - 6):.1f}")
    lines = "".join(
        f'<polyline points="{" ".join(p)}" fill="none" stroke="{ACCENT.on(dark)}" stroke-width="1.6" stroke-linejoin="round"/>'
        for p in parts
        if len(p) > 1
    )
    base = f'<line x1="0" x2="{width}" y1="{height - 1}" y2="{height - 1}" stroke="{MUTED.on(dark)}" stroke-opacity="0.5"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{base}{lines}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
