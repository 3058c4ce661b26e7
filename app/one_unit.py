"""One unit for the times of a line."""

from __future__ import annotations

import re

# A shorter time is often that of one call, which is usually given in µs, such as "1.8 µs per operator".
MIN_CONVERTED_US = 100.0
_MILLISECONDS = re.compile(r"\d[ \u00a0]ms(?!\w)")
_MICROSECONDS = re.compile(r"(?:(\d[\d,.]*)( to | → (?:≈[ \u00a0])?))?(\d[\d,.]*)[ \u00a0]µs(?!\w)")


def in_one_unit(line: str) -> str:
    """Return ``line`` with its times in ms if it has times in ms and in µs.

    An example is "0.68 ms of each 1.07 ms step". The line is unchanged if one of its times in µs is shorter than MIN_CONVERTED_US.
    """
    short_times = list(_MICROSECONDS.finditer(line)) if _MILLISECONDS.search(line) else []
    if any(_number(text) < MIN_CONVERTED_US for match in short_times for text in (match[1], match[3]) if text):
        return line
    return _MICROSECONDS.sub(_in_ms, line) if short_times else line


def _in_ms(match: re.Match[str]) -> str:
    start = f"{_number(match[1]) / 1e3:.2f}{match[2]}" if match[1] else ""
    return f"{start}{_number(match[3]) / 1e3:.2f}\u00a0ms"


def _number(text: str) -> float:
    return float(text.replace(",", ""))
