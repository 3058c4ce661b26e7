"""Read numbers exactly: decimal microseconds become integer nanoseconds without ever being a float."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

I64 = NDArray[np.int64]
NULL = np.iinfo(np.int64).min  # stands for "not recorded" in integer columns until they are stored
MAX_DIGITS = 15  # microseconds before the point: 15 digits are 31 years past any clock and fit 64-bit nanoseconds
MAX_WIDTH = MAX_DIGITS + 4  # with the point and three decimals
LARGEST = 1 << 62  # of a time in nanoseconds, so that a start plus a duration cannot overflow


def decimal_ns(raws: Sequence[Raw]) -> I64:
    """Return ``raws`` (JSON numbers or strings, microseconds) as nanoseconds, exactly; NULL where there is no such number.

    Digits beyond the nanosecond are rounded half to even. What does not fit becomes LARGEST with its sign.
    """
    result = np.full(len(raws), NULL, np.int64)
    if not len(raws):
        return result
    text = np.frombuffer(b"\n".join(raws) + b"\n", np.uint8)
    ends = np.flatnonzero(text == 10)
    if len(ends) != len(raws):  # a string with a line break inside
        for i, raw in enumerate(raws):
            result[i] = _one_ns(bytes(raw))
        return result
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    widths = ends - starts
    slow = [np.flatnonzero(widths > MAX_WIDTH)]
    for width in np.unique(widths):
        if 0 < width <= MAX_WIDTH:
            rows = np.flatnonzero(widths == width)
            slow.append(_same_width(text, starts[rows], int(width), rows, result))
    for i in np.concatenate(slow):
        result[i] = _one_ns(text[starts[i] : ends[i]].tobytes())
    return result


def _same_width(text: NDArray[np.uint8], starts: I64, width: int, rows: I64, result: I64) -> I64:
    """Fill ``result`` for numbers of one width; return the rows that need the slow way."""
    chars = text[starts[:, None] + np.arange(width)]
    points = chars == 46
    count = points.sum(axis=1)
    position = np.where(count == 1, points.argmax(axis=1), width)
    digits = chars - np.uint8(48)
    plain = (
        ((digits <= 9) | points).all(axis=1)
        & (count <= 1)
        & (position > 0)
        & (position <= MAX_DIGITS)
        & (width - position <= 4)
    )
    for at in np.unique(position[plain]):
        chosen = np.flatnonzero(plain & (position == at))
        value = np.zeros(len(chosen), np.int64)
        for column in range(width):
            if column != at:
                value = value * 10 + digits[chosen, column]
        decimals = max(0, width - int(at) - 1)
        result[rows[chosen]] = value * 10 ** (3 - decimals)
    return rows[~plain]


def _one_ns(text: bytes) -> int:
    try:
        value = Decimal(text.strip(b'" ').decode())
        if not value.is_finite():
            return NULL
        if abs(value) > LARGEST // 1000:
            return LARGEST if value > 0 else -LARGEST
        return int((value * 1000).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return NULL


def integers(values: Sequence[Any]) -> I64:
    """Return int, float or str ``values`` as int64; NULL for None, for what is no number and for what does not fit."""
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_one_integer, values), np.int64, len(values))


def _one_integer(value: Any) -> int:
    try:
        number = int(value) if not isinstance(value, str) else int(Decimal(value))
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        return NULL
    return number if -(1 << 63) < number < 1 << 63 else NULL


def floats(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return int, float or str ``values`` as float64; NaN (stored as NULL) for what is no finite number."""
    try:
        result = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.fromiter(map(_one_float, values), np.float64, len(values))
    result[~np.isfinite(result)] = np.nan
    return result


def _one_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def texts(raws: Sequence[Raw]) -> list[bytes]:
    """Return ``raws`` (JSON numbers or strings) as text without quotes."""
    found = b"\n".join(raws).split(b"\n")
    if len(found) != len(raws):
        found = [bytes(raw) for raw in raws]
    return [text[1:-1] if text[:1] == b'"' else text for text in found]
