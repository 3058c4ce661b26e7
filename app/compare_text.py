"""A comparison for people outside the app: Markdown for pull requests, text for terminals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.compare import Comparison
from analysis.gate import Outcome
from analysis.matching import Match
from app import compare_words as words
from app import format as fmt
from app.report_text import MARKER, TOP


def markdown(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """Return the comparison as GitHub-flavoured Markdown; the marker lets a bot find and replace its own comment."""
    lines = [
        MARKER,
        f"## {_plain(words.headline(comparison))}",
        "",
        _plain(words.certainty(comparison)),
        "",
    ]
    lines += [f"> {_plain(sentence)}\n" for sentence in words.sentences(comparison)]
    lines += [f"- {_plain(outcome.sentence)}" for outcome in outcomes]
    a, b = (_plain(fmt.clean(name, 40)) for name in words.names(comparison))
    lines += ["", f"| metric | A: {a} | B: {b} | change |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {label} | {left} | {right} | {_plain(change)} |" for label, left, right, change in words.metric_rows(comparison)
    ]
    if comparison.waterfall:
        lines += ["", f"{words.waterfall_title(words.bars(comparison), unprofiled=False)}.", ""]
        lines += ["| where the profiled step changed | A, ms | B, ms | change, ms |", "| --- | ---: | ---: | ---: |"]
        lines += [f"| {bar.label} | {bar.ms_a:.3f} | {bar.ms_b:.3f} | {bar.change_ms:+.3f} |" for bar in words.bars(comparison)]
        total = comparison.profile
        if total.a is not None and total.b is not None and total.change_ms is not None:
            lines.append(f"| **mean profiled step** | {total.a:.3f} | {total.b:.3f} | {total.change_ms:+.3f} |")
    for kind, rows in (("kernel", comparison.kernels), ("operator", comparison.operators)):
        if rows:
            lines += ["", f"<details><summary>{kind.capitalize()}s by change</summary>", ""]
            lines += [f"| {kind} | matched by | A, ms | B, ms | change, ms |", "| --- | --- | ---: | ---: | ---: |"]
            lines += [_match(row) for row in rows[:TOP]]
            lines += ["", "</details>"]
    for heading, found in (("Fixed", comparison.findings_fixed), ("New", comparison.findings_new)):
        if found:
            lines += ["", f"**{heading}**", "", *(f"- {_plain(finding.title)}" for finding in found)]
    return "\n".join(lines) + "\n"


_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_JOINED = re.compile(r"(@|#(?=\d)|:(?=//)|w(?=ww\.))", re.IGNORECASE)


def _plain(sentence: str) -> str:
    """Return a sentence, strangers' names and all, so that GitHub shows it as written: no markup, mention, reference or link."""
    shown = _SPECIAL.sub(r"\\\1", fmt.clean(sentence).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return _JOINED.sub("\\1\u2060", shown)


def _match(row: Match) -> str:
    label = _plain(fmt.clean(row.label, 80))
    return f"| {label} | {words.WAYS[row.how]} | {float(row.ns_a) / 1e6:.3f} | {float(row.ns_b) / 1e6:.3f} | {float(row.change_ns) / 1e6:+.3f} |"


def text(comparison: Comparison, outcomes: Sequence[Outcome] = ()) -> str:
    """Return the comparison for a terminal."""
    lines = [words.headline(comparison), words.certainty(comparison)]
    lines += ["", *words.sentences(comparison)] if words.sentences(comparison) else []
    rows = words.metric_rows(comparison)
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines += ["", f"A: {words.names(comparison)[0]}    B: {words.names(comparison)[1]}"]
    lines += [f"  {label:<{widths[0]}}  {a:>{widths[1]}}  {b:>{widths[2]}}  {change}" for label, a, b, change in rows]
    if comparison.waterfall:
        parts = words.bars(comparison)
        width = max(len(part.label) for part in parts)
        lines += ["", f"{words.waterfall_title(parts, unprofiled=False)} (ms per step)"]
        lines += [f"  {part.label:<{width}}  {part.ms_a:>9.3f}  {part.ms_b:>9.3f}  {part.change_ms:>+9.3f}" for part in parts]
    for heading, found in (("Fixed", comparison.findings_fixed), ("New", comparison.findings_new)):
        if found:
            lines += ["", heading, *(f"  {fmt.clean(finding.title)}" for finding in found)]
    lines += ["", *(outcome.sentence for outcome in outcomes)] if outcomes else []
    return "\n".join(lines) + "\n"
