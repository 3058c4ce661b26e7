"""Numbers and names for people: two or three significant figures with a unit, and names that stay plain text.

Missing values are never formatted here: a reading without a value shows its reason, not a dash that looks like one.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from decimal import Decimal

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.printable import printable

MISSING = "—"  # stands where a value would; its reason is always beside it or on hover
SIGNIFICANT = 3  # more is noise: steps of one run differ by more than a per mille
SHOWN_AS_FACTOR = 1.05  # times as fast: less reads as 1.0 ×, which is no gain
READ_FOR_ONE = 8  # characters that may compose into one
NAME_LENGTH = 120  # a longer name wraps every table; the whole one stands in the tooltip and the CSV

# What begins a directive, an address or an arrow in Streamlit's Markdown although it is written as an entity.
_BEGINS_SOMETHING = re.compile(r":(?=[\w/+-]+:|//)|@|[-<>~=](?=[-<>=])|w(?=ww)", re.IGNORECASE)
_UNITS = {"ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "mb": "MB", "gb": "GB", "pct": "%"}
_PERCENT = re.compile(r"(\d)%(?!\w)")
# Where a line never ends: between a number and its unit, after an arrow and an ≈.
_UNIT = r"(?:[nµm]?s|min|h|%|×|[kMGTP]?B|bytes|[MG]Hz|k?W|k?J|[kMGTPE]?FLOP)"
_KEPT = re.compile(rf"(?<=\d) (?={_UNIT}(?!\w))|(?<=[→≈]) ")
_THIN = "\u00a0"  # no-break space: a number never parts from its unit


def number(value: float, significant: int = SIGNIFICANT) -> str:
    """Return ``value`` with ``significant`` figures, without exponent between 0.001 and 10 million: 41.2, 0.0312, 1,240."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude < 1e-3 or magnitude >= 1e7:
        mantissa, exponent = f"{value:.{max(significant - 2, 0)}e}".split("e")
        return f"{mantissa.replace('-', '−')}e{int(exponent)}".replace("e-", "e−")
    rounded = float(f"{value:.{significant - 1}e}")
    decimals = max(significant - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:,.{decimals}f}".replace("-", "−")


def duration_ns(value: float) -> str:
    """Return nanoseconds as the unit that reads best, ns to h: 340 ns, 8.2 µs, 41.3 ms, 1.25 s, 3.1 min, 18 h."""
    magnitude = abs(value)
    for limit, divisor, unit in (
        (999.5, 1, "ns"),
        (999.5e3, 1e3, "µs"),
        (999.5e6, 1e6, "ms"),
        (119.5e9, 1e9, "s"),
        (119.5 * 60e9, 60e9, "min"),
    ):
        if magnitude < limit:
            return f"{number(value / divisor)}{_THIN}{unit}"
    return f"{number(value / 3600e9)}{_THIN}h"


def duration_ms(value: float) -> str:
    """Return milliseconds as a time that reads well; see ``duration_ns``."""
    return duration_ns(value * 1e6)


def step_change(before_ms: float, after_ms: float) -> str:
    """Return a step's time before and as predicted, with one unit where both have the same: 65.7 → ≈ 35.1 ms, 1.25 s → ≈ 310 ms."""
    before, after = duration_ms(before_ms), duration_ms(after_ms)
    number_before, unit = before.split(_THIN)
    return f"{number_before if after.endswith(_THIN + unit) else before} → ≈{_THIN}{after}"


def shortened(before_ms: float, after_ms: float) -> str:
    """Return what a step is shorter by, so that the three times add up as they are shown: 33.6 and 15.9 ms differ by 17.7 ms."""
    (before, unit), (after, other) = (duration_ms(ms).split(_THIN) for ms in (before_ms, after_ms))
    if unit != other:
        return duration_ms(before_ms - after_ms)
    of = Decimal(before.replace(",", ""))
    left = (of - Decimal(after.replace(",", ""))).quantize(of)
    return f"{left:,}{_THIN}{unit}" if left > 0 else duration_ms(before_ms - after_ms)


def share(value: float) -> str:
    """Return a share (0 to 1) in percent: 88 %, 6.2 %, 0.52 %, and never 100 % for less than that or 0 % for more."""
    percent = value * 100
    if percent == 0:
        return f"0{_THIN}%"
    magnitude = abs(percent)
    sign = "−" if percent < 0 else ""
    if magnitude < 0.01:
        return f"{sign}<{_THIN}0.01{_THIN}%" if sign == "" else f">{_THIN}−0.01{_THIN}%"
    if magnitude < 10:
        return f"{sign}{number(magnitude, 2)}{_THIN}%"
    if 99.5 <= magnitude < 100:
        return f"{sign}{min(math.floor(magnitude * 10) / 10, 99.9):.1f}{_THIN}%"
    return f"{sign}{magnitude:,.0f}{_THIN}%"


def bytes_(value: float) -> str:
    """Return bytes in decimal units, as disks and vendors count: 840 B, 12.3 kB, 1.24 GB."""
    whole = value == round(value) and abs(value) < 1000
    return f"{value:.0f}\u00a0B" if whole else _scaled(value, "B", ("", "k", "M", "G", "T", "P"))


def flops(value: float) -> str:
    """Return an amount of floating-point operations: 1.56 TFLOP."""
    return _scaled(value, "FLOP", ("", "k", "M", "G", "T", "P", "E"))


def flop_rate(tflops_per_s: float) -> str:
    """Return a rate given in TFLOP/s: 312 TFLOP/s, 1.98 PFLOP/s, 450 GFLOP/s."""
    return _scaled(tflops_per_s * 1e12, "FLOP/s", ("", "k", "M", "G", "T", "P", "E"))


def count(value: float) -> str:
    """Return a count: exact below 10,000 when it is whole (918, 1,240), else 12.4 k, 5.02 M."""
    if abs(value) < 10_000:
        return f"{value:,.0f}".replace("-", "−") if float(value).is_integer() else number(value)
    return _scaled(value, "", ("", "k", "M", "G"))


def many(number_of: int, noun: str) -> str:
    """Return a number of things: 1 trace, 3 traces."""
    return f"{count(number_of)} {noun}{'' if number_of == 1 else 's'}"


def points(change: float) -> str:
    """Return the change of a share in percentage points with its sign: +12 points."""
    return signed(f"{number(change * 100, 2)}\u00a0points", change)


def factor(value: float) -> str:
    """Return a ratio of two numbers: 6.6 ×."""
    return f"{number(value, 2)}{_THIN}×"


def speedup(value: float) -> str:
    """Return how much faster a step becomes: 6.6 ×; where that would round to 1.0, how much of it goes: −2.9 %."""
    return factor(value) if value >= SHOWN_AS_FACTOR else signed(share(1 / value - 1), 1 / value - 1)


def span_ms(low_ms: float, high_ms: float) -> str:
    """Return a range of times, with one unit where both have the same: 37.2 to 46.7 ms, 820 µs to 37.1 ms; one time where both read alike."""
    low, high = duration_ms(low_ms), duration_ms(high_ms)
    if low == high:
        return low
    return f"{low.split(_THIN)[0] if low.split(_THIN)[1] == high.split(_THIN)[1] else low} to {high}"


def times(value: float) -> str:
    """Return how many times as much one number is as another, to three digits, since a difference below a tenth counts: 1.39 ×."""
    return f"{number(value, 3)}{_THIN}×"


def money(value: float, currency: str = "$") -> str:
    """Return an amount of money: $ 12.40, $ 1,240."""
    return f"{currency}{_THIN}{value:,.2f}" if abs(value) < 1000 else f"{currency}{_THIN}{value:,.0f}"


def spaced(sentence: str) -> str:
    """Return a sentence with the space before % that numbers for people have, no line of which ends within a number and its unit or after an arrow."""
    return _KEPT.sub(_THIN, _PERCENT.sub(f"\\1{_THIN}%", sentence))


def signed(text: str, value: float) -> str:
    """Put a plus before the ``text`` of a positive ``value``; the formatters write the minus themselves."""
    return f"+{text}" if value > 0 else text


def in_unit(value: float, unit: str) -> str:
    """Return ``value`` of a metric's ``unit`` (see ``sawtooth.analysis.metrics.registry.Metric``) for people."""
    by_unit = {
        "ms": duration_ms,
        "s": lambda v: duration_ns(v * 1e9),
        "ns": duration_ns,
        "share": share,
        "percent": lambda v: share(v / 100),
        "FLOP": flops,
        "TFLOP/s": flop_rate,
        "count": count,
        "bytes": bytes_,
    }
    known = by_unit.get(unit)
    return known(value) if known else f"{number(value)}{_THIN}{unit}"


_BOUNDS = {"least": f"≥{_THIN}", "most": f"≤{_THIN}"}


def reading(key: str, value: Reading) -> str:
    """Return a reading of metric ``key`` for people, or the sign for a missing one; its reason is ``value.why_missing``.

    What a failed check has made a bound has its sign: ≥ 42 %.
    """
    if value.value is None:
        return MISSING
    sign = _BOUNDS[value.bound] if value.bound is not None else ""
    return f"{sign}{in_unit(value.value, METRICS[key].unit)}"


def clean(name: str, length: int | None = None) -> str:
    """Return a stranger's text without control and direction characters, cut to ``length`` with an ellipsis."""
    if length is not None:  # a name of megabytes costs no more than one of a line
        name = name[: READ_FOR_ONE * length]
    kept = unicodedata.normalize("NFC", printable(name))
    return f"{kept[: length - 1]}…" if length is not None and len(kept) > length else kept


def plain(name: str, length: int | None = NAME_LENGTH) -> str:
    """Return a stranger's text for Plotly labels and ``st.html``: escaped, so that it shows as written.

    Never put it into a hovertemplate, where ``%{…}`` is evaluated: pass it as customdata.
    """
    return html.escape(clean(name, length), quote=True).replace("&quot;", "&#34;")  # Plotly knows numbers only


def markdown(name: str, length: int | None = NAME_LENGTH) -> str:
    """Return a stranger's text for Markdown: labels of buttons, links, metrics, tabs and captions.

    Escaping alone does not do: addresses become links, ``:name:`` becomes an icon and ``->`` an arrow after the escapes are resolved.
    Signs that begin one of these are followed by an invisible word joiner; others are not, so that most names are copied as they are.
    """
    text, pieces = clean(name, length), []
    for at, sign in enumerate(text):
        pieces.append(sign if sign.isalnum() or sign in " ,;…" else f"&#{ord(sign)};")
        if _BEGINS_SOMETHING.match(text, at):
            pieces.append("\u2060")
    return "".join(pieces)


def heading(key: str) -> str:
    """Return the key of a value as a heading for people, its unit last: ``longest_wait_ms`` is "Longest wait, ms"."""
    name, _, suffix = key.rpartition("_")
    words = f"{name}, {_UNITS[suffix]}" if name and suffix in _UNITS else key
    words = words.replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


def _scaled(value: float, unit: str, prefixes: tuple[str, ...]) -> str:
    magnitude = abs(value)
    for exponent, prefix in enumerate(prefixes):
        if magnitude < 999.5 * 1000**exponent or exponent == len(prefixes) - 1:
            return f"{number(value / 1000**exponent)}{_THIN}{prefix}{unit}".rstrip(_THIN)
    raise AssertionError("the last prefix always fits")
