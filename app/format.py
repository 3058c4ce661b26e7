"""Format numbers, with two or three digits and a unit, and untrusted names."""

from __future__ import annotations

import html
import math
import re
import time
import unicodedata
from decimal import Decimal

from sawtooth.analysis.metrics.reading import Bound, Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.one_unit import in_one_unit
from sawtooth.app.printable import printable

MISSING = "—"  # Replaces a missing value. Its reason is always next to it or on hover.
SIGNIFICANT_DIGITS = 3  # More digits would be noise: steps of one run differ by more than 0.1 %.
SHOWN_AS_FACTOR = 1.05  # Speed-up. A smaller one would read as 1.0 ×, which looks like no gain.
READ_FOR_ONE = 8  # Characters that are read for each shown one, because several characters may compose into one.
NAME_LENGTH = 120  # A longer name would wrap every table. The tooltip and the CSV have the full name.

# Characters that begin a directive, an address or an arrow in Streamlit's Markdown, even as an entity.
_BEGINS_SOMETHING = re.compile(r":(?=[\w/+-]+:|//)|@|[-<>~=](?=[-<>=])|w(?=ww)", re.IGNORECASE)
_UNITS = {"ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "mb": "MB", "gb": "GB", "gib": "GiB", "pct": "%"}
_PERCENT = re.compile(r"(\d)%(?!\w)")  # A line must not break between a number and its unit, or after an arrow or ≈.
_UNIT = r"(?:[nµm]?s|min|h|%|×|[kMGTP]?i?B|bytes|[MG]Hz|k?W|k?J|[kMGTPE]?FLOP)"
_NO_BREAK = re.compile(rf"(?<=\d) (?={_UNIT}(?!\w))|(?<=[→≈]) ")
_THIN = "\u00a0"  # A no-break space, so that a number and its unit remain on one line.


def number(value: float, significant: int = SIGNIFICANT_DIGITS) -> str:
    """Return ``value`` with ``significant`` digits, such as 41.2, 0.0312 or 1,240.

    There is no exponent between 0.001 and 10 million.
    """
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
    """Return nanoseconds in the most readable unit: 340 ns, 8.2 µs, 41.3 ms, 1.25 s, 3.1 min, 18 h."""
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
    """Return milliseconds as a readable time; see ``duration_ns``."""
    return duration_ns(value * 1e6)


APPROXIMATELY = f"≈{_THIN}"  # Before every estimated or predicted value with a unit; never before a factor or a range.


def step_change(before_ms: float, after_ms: float, *, about: str = "", after_about: str = APPROXIMATELY) -> str:
    """Return a step's time before and after: "1.07 → ≈ 0.63 ms" or "1.25 s → ≈ 310 ms".

    ``about`` is APPROXIMATELY if the time before is estimated, and ``after_about`` is "" if the time after is measured.
    """
    before, after = part_ms(after_ms, before_ms), part_ms(before_ms, after_ms)
    number_before, unit = before.split(_THIN)
    return f"{about}{number_before if after.endswith(_THIN + unit) else before} → {after_about}{after}"


def saved_time(before_ms: float, after_ms: float) -> str:
    """Return by how much a step is shorter, as the difference of the rounded times that are shown.

    For example, 33.6 and 15.9 ms differ by 17.7 ms.
    """
    times = part_ms(after_ms, before_ms), part_ms(before_ms, after_ms)
    (before, unit), (after, other) = (text.split(_THIN) for text in times)
    if unit != other:
        return duration_ms(before_ms - after_ms)
    of = Decimal(before.replace(",", ""))
    difference = (of - Decimal(after.replace(",", ""))).quantize(of)
    return f"{difference:,}{_THIN}{unit}" if difference > 0 else duration_ms(before_ms - after_ms)


def share(value: float) -> str:
    """Return a share (0 to 1) in percent, such as 88 %, 6.2 % or 0.52 %.

    A share below 1 is never rounded to 100 %, and a share above 0 never to 0 %.
    """
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


def shown_share(value: float | None) -> float | None:
    """Return a share for a table that formats numbers, near 1 rounded down as by ``share``.

    0.9965 is 99.6 %, not 99.7 %.
    """
    return math.floor(value * 1000) / 1000 if value is not None and 0.995 <= value < 1 else value


def bytes_(value: float) -> str:
    """Return bytes in decimal units, as disks and vendors use them: 840 B, 12.3 kB, 1.24 GB."""
    is_integer = value == round(value) and abs(value) < 1000
    return f"{value:.0f}\u00a0B" if is_integer else _scale(value, "B", ("", "k", "M", "G", "T", "P"))


def memory(value: float) -> str:
    """Return an amount of device or host memory in the units of nvidia-smi and PyTorch: 38.1 GiB."""
    return _scale(value, "B", ("", "Ki", "Mi", "Gi", "Ti"), 1024)


def flops(value: float) -> str:
    """Return a number of floating-point operations, such as 1.56 TFLOP."""
    return _scale(value, "FLOP", ("", "k", "M", "G", "T", "P", "E"))


def flop_rate(tflops_per_s: float) -> str:
    """Return a rate in TFLOP/s with a readable unit: 312 TFLOP/s, 1.98 PFLOP/s, 450 GFLOP/s."""
    return _scale(tflops_per_s * 1e12, "FLOP/s", ("", "k", "M", "G", "T", "P", "E"))


def count(value: float) -> str:
    """Return a count: exact below 10,000 if it is an integer (918, 1,240), else 12.4 k, 5.02 M."""
    if abs(value) < 10_000:
        return f"{value:,.0f}".replace("-", "−") if float(value).is_integer() else number(value)
    return _scale(value, "", ("", "k", "M", "G"))


def many(number_of: int, noun: str) -> str:
    """Return a number with its noun: 1 trace, 3 traces."""
    return f"{count(number_of)} {noun}{'' if number_of == 1 else 's'}"


def points(change: float) -> str:
    """Return the change of a share in percentage points with its sign: +12 points."""
    return signed(f"{number(change * 100, 2)}\u00a0points", change)


def factor(value: float) -> str:
    """Return a ratio of two numbers: 6.6 ×."""
    return f"{number(value, 2)}{_THIN}×"


def speedup(value: float) -> str:
    """Return a step's speed-up, such as 6.6 ×; a small one as the saved share, such as −2.9 %."""
    return factor(value) if value >= SHOWN_AS_FACTOR else signed(share(1 / value - 1), 1 / value - 1)


MIN_MS = 0.01  # Ms: a shorter time is shown in µs, even next to a time in ms.


def part_ms(whole_ms: float, ms: float) -> str:
    """Return a time in the unit of the whole of which it is a part: 0.83 ms of 9.01 ms."""
    in_ms = duration_ms(whole_ms).endswith(f"{_THIN}ms") and (MIN_MS <= ms < 1 or ms == 0)
    return f"{number(ms, 2)}{_THIN}ms" if in_ms else duration_ms(ms)


def span_ms(low_ms: float, high_ms: float, whole_ms: float = 0.0) -> str:
    """Return a range of times: "37.2 to 46.7 ms", "0.82 to 37.1 ms", or one if both are equal.

    The times have the unit of the longest of them and of ``whole_ms``, as in ``part_ms``.
    """
    low, high = (part_ms(max(whole_ms, low_ms, high_ms), ms) for ms in (low_ms, high_ms))
    if low == high:
        return low
    return f"{low.split(_THIN)[0] if low.split(_THIN)[1] == high.split(_THIN)[1] else low} to {high}"


def times(value: float, digits: int = 3) -> str:
    """Return a ratio, usually with three digits, because differences below 0.1 matter: 1.39 ×."""
    return f"{number(value, digits)}{_THIN}×"


def money(value: float, currency: str = "$") -> str:
    """Return an amount of money: $ 12.40, $ 1,240."""
    return f"{currency}{_THIN}{value:,.2f}" if abs(value) < 1000 else f"{currency}{_THIN}{value:,.0f}"


def day_and_time(ns: float) -> str:
    """Return a Unix time in ns as "29 Nov 14:05 UTC"."""
    return time.strftime("%d %b %H:%M UTC", time.gmtime(ns / 1e9))


def spaced(sentence: str) -> str:
    """Return a sentence with times in one unit, and no-break spaces before units and % and after arrows."""
    return _NO_BREAK.sub(_THIN, _PERCENT.sub(f"\\1{_THIN}%", in_one_unit(sentence)))


def as_title(sentence: str) -> str:
    """Return a sentence as a title, which has no full stop at its end."""
    return sentence.rstrip().removesuffix(".") if not sentence.rstrip().endswith("..") else sentence


def ended(sentence: str) -> str:
    """Return a sentence with a full stop at its end, if it has no final punctuation yet."""
    return sentence if sentence.endswith((".", "?", "!", "…")) else f"{sentence}."


def signed(text: str, value: float) -> str:
    """Return ``text`` with a plus if ``value`` is positive; formatters write the minus themselves."""
    return f"+{text}" if value > 0 else text


def in_unit(value: float, unit: str) -> str:
    """Return ``value`` with a metric's ``unit`` (see ``sawtooth.analysis.metrics.registry.Metric``)."""
    by_unit = {
        "ms": duration_ms, "s": lambda v: duration_ns(v * 1e9), "ns": duration_ns, "share": share, "percent": lambda v: share(v / 100),
        "FLOP": flops, "TFLOP/s": flop_rate, "count": count, "bytes": memory,
    }  # fmt: skip
    fixed_unit = by_unit.get(unit)
    # Sensors report whole degrees.
    return fixed_unit(value) if fixed_unit else f"{f'{value:.0f}' if unit == '°C' else number(value)}{_THIN}{unit}"


BOUNDS = {"least": f"≥{_THIN}", "most": f"≤{_THIN}"}


def reading(key: str, value: Reading) -> str:
    """Return a reading of metric ``key`` as text; a missing value becomes MISSING.

    If a failed check makes the value a bound, its sign is shown, as in "≥ 42 %".
    """
    if value.value is None:
        return MISSING
    return with_bound_sign(in_unit(value.value, METRICS[key].unit), value.bound)


def with_bound_sign(text: str, bound: Bound | None) -> str:
    """Return a value's text with the sign of its bound; the text "< 0.01 %" already has a sign."""
    if text.startswith("<") and bound is not None:
        return text if bound == "most" else f"{BOUNDS[bound]}0"
    return f"{BOUNDS[bound]}{text}" if bound is not None else text


def clean(name: str, length: int | None = None) -> str:
    """Return an untrusted text without control and direction characters, cut to ``length`` with "…"."""
    if length is not None:  # A name of megabytes must not cost more time than a short one.
        name = name[: READ_FOR_ONE * length]
    printable_name = unicodedata.normalize("NFC", printable(name))
    return f"{printable_name[: length - 1]}…" if length is not None and len(printable_name) > length else printable_name


def plain(name: str, length: int | None = NAME_LENGTH) -> str:
    """Return an untrusted text, escaped for Plotly labels and ``st.html``.

    Never put it into a hovertemplate, where ``%{…}`` is evaluated: pass it as customdata.
    """
    return html.escape(clean(name, length), quote=True).replace("&quot;", "&#34;")  # Plotly knows only numeric entities.


def markdown(name: str, length: int | None = NAME_LENGTH) -> str:
    """Return an untrusted text for Markdown: labels of buttons, links, metrics, tabs and captions.

    Escaping alone is not enough: after the escapes are resolved, addresses become links, ``:name:`` becomes an icon, and
    ``->`` becomes an arrow. An invisible word joiner after the first character of such a text prevents this. Other characters
    are not escaped, so that users can copy most names unchanged.
    """
    text, pieces = clean(name, length), []
    for at, sign in enumerate(text):
        pieces.append(sign if sign.isalnum() or sign in " ,;…" else f"&#{ord(sign)};")
        if _BEGINS_SOMETHING.match(text, at):
            pieces.append("\u2060")
    return "".join(pieces)


def heading(key: str) -> str:
    """Return a value's key as a heading with its unit last: ``longest_wait_ms`` is "Longest wait, ms"."""
    name, _, suffix = key.rpartition("_")
    words = f"{name}, {_UNITS[suffix]}" if name and suffix in _UNITS else key
    words = words.replace("_", " ").replace("-", " ").replace("pcie", "PCIe")
    return words[:1].upper() + words[1:]


def _scale(value: float, unit: str, prefixes: tuple[str, ...], base: int = 1000) -> str:
    magnitude = abs(value)
    for exponent, prefix in enumerate(prefixes):
        if magnitude < 999.5 * base**exponent or exponent == len(prefixes) - 1:
            return f"{number(value / base**exponent)}{_THIN}{prefix}{unit}".rstrip(_THIN)
    raise AssertionError("the last prefix always fits")
