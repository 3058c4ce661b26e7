"""Checks of the fuzzers: figures that no machine can have, and names that become markup or control characters."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.fuzz.hostile import MARKUP

# Largest values of metrics whose values start at 0. They are repeated here on purpose, because the registry must not check itself.
MOST = {
    "gpu_busy_share": 1, "gpu_idle_share": 1, "tensor_core_time_share": 1, "exposed_comm_share": 1, "mfu": 1.001, "flop_coverage": 1,
    "mean_gpu_utilization_pct": 100, "step_time_ms": 7 * 86_400_000, "best_step_time_ms": 7 * 86_400_000,
}  # fmt: skip


class ImpossibleError(AssertionError):
    """A figure, a page or a text that must not be."""


def finite(value: Any, where: str = "") -> None:
    """Raise ImpossibleError if a report has a number that is not finite."""
    for place, number in numbers(value, where):
        if not math.isfinite(number):
            raise ImpossibleError(f"{place} is {number}")


def numbers(value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Return every number of a report with its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{where}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where, value


def possible(report: dict[str, Any]) -> None:
    """Raise ImpossibleError for a trusted value that no machine can have."""
    finite(report, "report")
    for key, reading in report["metrics"].items():
        value, low, high = reading["value"], reading.get("low"), reading.get("high")
        if (value is None) is not bool(reading["why_missing"]):
            raise ImpossibleError(f"{key}: a value and a reason why there is none, or neither")
        if value is None or reading["trust"] != "ok":
            continue
        if value < 0 or value > MOST.get(key, 1 if key.endswith("_share") else math.inf):
            raise ImpossibleError(f"{key} = {value} with trust ok")
        if (low is not None and low > value * (1 + 1e-9)) or (high is not None and high < value * (1 - 1e-9)):
            raise ImpossibleError(f"{key} = {value} lies outside its interval {low} to {high}")
    owned = Counter[int]()
    for row in report["ledger"]:
        owned[row["device"]] += row["ns"]
        if row["ns"] < 0:
            raise ImpossibleError(f"a ledger row of {row['ns']} ns")
    if owned and report["window_ns"] not in owned.values():
        raise ImpossibleError(f"the ledger sums to {dict(owned)}, the window is {report['window_ns']}")


def harmless(text: str, form: str) -> None:
    """Raise ImpossibleError if a name in a report became markup or control characters."""
    if form == "html" and (MARKUP in text or re.search(r"<script|<iframe|javascript:alert\(1\)['\"]", text)):
        raise ImpossibleError("a name became markup in the HTML report")
    if form == "md" and MARKUP in re.sub(r"```.*?```", "", text, flags=re.DOTALL):
        raise ImpossibleError("a name became markup in the Markdown report")
    signs = {c for c in text if unicodedata.category(c) in ("Cc", "Cs") or c in "‪‫‬‭‮⁦⁧⁨⁩\u200e\u200f"}
    if form in ("text", "md") and signs - {"\n"}:
        raise ImpossibleError(f"{sorted(map(hex, map(ord, signs)))} in the {form} report")
