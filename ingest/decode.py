"""Convert numbers exactly: decimal microseconds become integer nanoseconds, without floats."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

I64 = NDArray[np.int64]
POINT, NEWLINE = b".\n"
SIMPLE_NUMBER = re.compile(rb"-?\d{1,15}(?:\.\d{0,3})?")  # Any such number of microseconds fits 64-bit nanoseconds.
SCALES = np.array([1000, 100, 10, 1], np.int64)  # Value of the last digit in ns, for microseconds with 0, 1, 2 and 3 decimals.
NULL = np.iinfo(np.int64).min  # Means "not recorded" in integer columns until they are stored.
MICROSECOND_NS = 1000  # Number of nanoseconds in a microsecond.
FIRST_TIMES = 64  # If a trace has times with fractions of a microsecond, one of the first 64 times usually has a fraction.
MAX_TIME_NS = 1 << 62  # The sum of two such times does not overflow.


def decimal_ns(raws: Sequence[Raw | bytes]) -> I64:
    """Return ``raws`` (JSON numbers or strings, microseconds) as exact nanoseconds.

    The result is NULL for a raw that is not a number. Digits beyond the nanosecond are rounded half to even. A number that does not fit
    becomes MAX_TIME_NS or -MAX_TIME_NS.
    """
    count = len(raws)
    joined = b"\n".join(raws) + b"\n"
    chars = np.frombuffer(joined, np.uint8)
    ends, points = np.flatnonzero(chars == NEWLINE), np.flatnonzero(chars == POINT)
    if len(ends) != count:
        return _mixed_ns(raws)
    rows = np.arange(count)
    if not len(points):
        decimals, digits = np.zeros(count, np.int64), ends - rows
    elif len(points) == count and (points < ends).all() and (points[1:] > ends[:-1]).all():
        decimals, digits = ends - 1 - points, ends - 2 * rows - 1
    else:
        return _mixed_ns(raws)
    try:
        if decimals.max(initial=0) > 3:
            return _mixed_ns(raws)
        value = _integers_ending_at(joined.replace(b".", b"").replace(b"\n", b""), digits)
    except pa.ArrowInvalid:
        return _mixed_ns(raws)
    scale = SCALES[decimals]
    return np.minimum(value * scale, MAX_TIME_NS) if (np.abs(value) <= MAX_TIME_NS // scale).all() else _mixed_ns(raws)


def _mixed_ns(raws: Sequence[Raw | bytes]) -> I64:
    """Return the result of ``decimal_ns`` if only some numbers have a point, or some raws are not numbers."""
    numbers = texts(raws)
    rows = [i for i, text in enumerate(numbers) if SIMPLE_NUMBER.fullmatch(text)]
    result = np.full(len(raws), NULL, np.int64)
    if rows:
        padded = [
            b"%b%b" % (whole, fraction.ljust(3, b"0")) for whole, _, fraction in (numbers[i].partition(b".") for i in rows)
        ]
        result[rows] = _integers_ending_at(b"".join(padded), np.cumsum([len(text) for text in padded]))
    for i in set(range(len(raws))).difference(rows):
        result[i] = _one_ns(numbers[i])
    return np.clip(result, np.where(result == NULL, NULL, -MAX_TIME_NS), MAX_TIME_NS)


def _integers_ending_at(digits: bytes, ends: I64) -> I64:
    """Return the integers in ``digits``, each of which ends at one of ``ends``."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    numbers = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(digits))
    return pc.cast(numbers, pa.int64()).to_numpy(zero_copy_only=False)


def whole_microseconds(times: I64) -> bool:
    """Return whether no time (ns) has a fraction of a microsecond."""
    if len(times) > FIRST_TIMES and not whole_microseconds(times[:FIRST_TIMES]):
        return False
    return bool((times // MICROSECOND_NS * MICROSECOND_NS == times).all())  # Twice as fast as computing the remainder.


def _one_ns(text: bytes) -> int:
    try:
        value = Decimal(text.decode())
        if not value.is_finite():
            return NULL
        if value.copy_abs() > MAX_TIME_NS // 1000:  # abs() rounds, which is too slow for numbers of a billion digits.
            return MAX_TIME_NS if value > 0 else -MAX_TIME_NS
        return int((value * 1000).to_integral_value())
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return NULL


def integers(values: Sequence[Any]) -> I64:
    """Return int, float or str ``values`` as int64.

    NULL for None, for values that are not numbers, and for numbers that do not fit.
    """
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        result = np.array(values, np.int64)
        if result.ndim == 1:  # Lists of equal length would become a table.
            return result
    return np.fromiter(map(_one_integer, values), np.int64, len(values))


def small_integers(values: Sequence[Any]) -> I64:
    """Return ``values`` as ``integers`` does, with NULL also for numbers that do not fit into 32 bits."""
    result = integers(values)
    result[np.abs(result) >= 1 << 31] = NULL
    return result


def _one_integer(value: Any) -> int:
    try:
        number = Decimal(value) if isinstance(value, str) else value
        # The range is checked first, because int() of 1e9999999 takes minutes.
        return int(number) if -(1 << 63) < number < 1 << 63 else NULL
    except (TypeError, ValueError, OverflowError, InvalidOperation):
        return NULL


def floats(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return int, float or str ``values`` as float64; NaN (stored as NULL) if not a finite number."""
    try:
        result = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.empty(0)
    if result.shape != (len(values),):  # A value is not a number, or there are lists of equal length.
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
    pieces = joined.split(b"\n") if raws else []
    if len(pieces) != len(raws):
        pieces = [bytes(raw) for raw in raws]
    return [text[1:-1] if text[:1] == b'"' else text for text in pieces] if b'"' in joined else pieces
