"""Read numbers exactly: decimal microseconds become integer nanoseconds without ever being a float."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

I64 = NDArray[np.int64]
POINT, MINUS, NINE = b".-9"
SCALES = np.array([1000, 100, 10, 1], np.int64)  # nanoseconds of the last digit, by the number of decimals of a microsecond
NULL = np.iinfo(np.int64).min  # stands for "not recorded" in integer columns until they are stored
MAX_DIGITS = 19  # of a 64-bit integer, where the first digit is at most 8
LARGEST = 1 << 62  # of a time in nanoseconds, so that a start plus a duration cannot overflow


def decimal_ns(raws: Sequence[Raw | bytes]) -> I64:
    """Return ``raws`` (JSON numbers or strings, microseconds) as nanoseconds, exactly; NULL where there is no such number.

    Digits beyond the nanosecond are rounded half to even. What does not fit becomes LARGEST with its sign.
    """
    count = len(raws)
    joined = b"".join(raws)
    if b'"' in joined:
        raws = texts(raws)
        joined = b"".join(raws)
    chars = np.frombuffer(joined, np.uint8)
    widths = np.fromiter(map(len, raws), np.int64, count)
    ends = np.cumsum(widths)
    points = np.flatnonzero(chars == POINT)
    pointed = np.searchsorted(ends, points, side="right")  # row of each point
    decimals = np.zeros(count, np.int64)
    decimals[pointed] = ends[pointed] - 1 - points
    digits = widths.copy()
    digits[pointed] -= 1
    first = chars[np.minimum(ends - widths, max(0, len(chars) - 1))] if len(chars) else np.zeros(count, np.uint8)
    plain = (
        (digits > 0) & (decimals <= 3) & (digits + 3 - decimals <= MAX_DIGITS) & ((first < NINE) | (digits < MAX_DIGITS - 3))
    )
    odd = np.flatnonzero((chars - np.uint8(48) > 9) & (chars != POINT) & (chars != MINUS))
    plain[np.searchsorted(ends, odd, side="right")] = False
    if len(pointed) and (np.diff(pointed) == 0).any():
        plain[pointed] = False
    try:
        if plain.all():
            result = _whole(joined.replace(b".", b""), np.cumsum(digits)) * SCALES[decimals]
        else:
            result = np.full(count, NULL, np.int64)
            rows = np.flatnonzero(plain)
            kept = b"".join([bytes(raws[i]) for i in rows.tolist()]).replace(b".", b"")
            result[rows] = _whole(kept, np.cumsum(digits[rows])) * SCALES[decimals[rows]]
            for i in np.flatnonzero(~plain).tolist():
                result[i] = _one_ns(bytes(raws[i]))
    except pa.ArrowInvalid:  # a minus in the middle of a quoted number
        result = np.fromiter((_one_ns(bytes(raw)) for raw in raws), np.int64, count)
    return np.minimum(result, LARGEST)


def _whole(digits: bytes, ends: I64) -> I64:
    """Read integers that stand one behind the other in ``digits``."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    numbers = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(digits))
    return pc.cast(numbers, pa.int64()).to_numpy(zero_copy_only=False)


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


def small_integers(values: Sequence[Any]) -> I64:
    """Return ``values`` as ``integers`` does; NULL also for what does not fit into 32 bits."""
    result = integers(values)
    result[np.abs(result) >= 1 << 31] = NULL
    return result


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


def texts(raws: Sequence[Raw | bytes]) -> list[bytes]:
    """Return ``raws`` (JSON numbers or strings) as text without quotes."""
    joined = b"\n".join(raws)
    found = joined.split(b"\n") if raws else []
    if len(found) != len(raws):
        found = [bytes(raw) for raw in raws]
    return [text[1:-1] if text[:1] == b'"' else text for text in found] if b'"' in joined else found
