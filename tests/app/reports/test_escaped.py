"""Tests of user text in Markdown: shown as written, and readable in the file."""

import html
import re

import pytest
from markdown_it import MarkdownIt

from sawtooth.app import format as fmt
from sawtooth.app.reports.escaped import as_written, table

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
STRANGE = [
    "<script>alert(1)</script> <!-- hidden",
    "![x](http://evil.example/x.png) [link](javascript:alert(1)) [link][1]",
    "**bold** _it_ __it__ a__b__c `code` ~~gone~~ *x",
    "a<b>c</b>d &lt;b&gt; &#46; & R&D",
    "a | b \\| c \\",
    "- no list",
    "+ none",
    "# no heading",
    "> no quote",
    "== --- ***",
    "void k<4, at::native::Functor<float>>(int, char*, std::array<char*, 3>)",
    "$\\frac{1}{2}$ costs $5",
    "'; DROP TABLE gpu_ops; --",
]


def shown(markdown: str) -> str:
    """Return what a browser shows of Markdown."""
    return html.unescape(re.sub(r"<[^>]*>", "", READER.render(markdown))).replace("\u2060", "").strip()


@pytest.mark.parametrize("text", STRANGE)
def test_escaped_text_is_shown_unchanged_everywhere(text: str) -> None:
    written = as_written(text)
    assert shown(written) == text
    assert shown(f"## {written}") == text
    assert shown(f"**1. {written}**: more") == f"1. {text}: more"
    assert shown(f"| {written} | b |\n| --- | --- |\n| {written} | d |").split("\n")[0] == text


@pytest.mark.parametrize("text", ["@octocat", "#17", "http://evil.example", "www.evil.example", ":tada:"])
def test_escaped_text_makes_no_mentions_or_links(text: str) -> None:
    assert text not in as_written(text) and as_written(text).replace("\u2060", "") == text


@pytest.mark.parametrize(
    "text",
    [
        "Pad 774 and 50257 to multiples of 64: 65.7 → ≈ 35 ms",
        "The power limit held the clocks at 1960 MHz (38 % of the time); 3.59 ms at 10:30:05",
        "set num_workers=8, pin_memory=True in train.py:12",
        "aten::mm reads x.grad, 2 > 1 & R&D",
    ],
)
def test_an_ordinary_sentence_is_not_escaped(text: str) -> None:
    assert as_written(text) == fmt.clean(text)


@pytest.mark.parametrize("text", STRANGE)
def test_a_table_shows_its_cells_and_headings_as_written(text: str) -> None:
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", READER.render("\n".join(table(["what", text], [[text, "1"]]))))
    assert [html.unescape(cell).replace("\u2060", "") for cell in cells] == ["what", text, text, "1"]
