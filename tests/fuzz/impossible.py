"""Checks of the fuzzers for impossible figures, markup and control characters."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.fuzz.hostile import MARKUP

# Largest values of metrics whose values start at 0. They are repeated here on purpose, because the registry must not check itself.
MAX_VALUES = {
    "gpu_busy_share": 1, "gpu_idle_share": 1, "tensor_core_time_share": 1, "exposed_comm_share": 1, "mfu": 1.001, "flop_coverage": 1,
    "mean_gpu_utilization_pct": 100, "step_time_ms": 7 * 86_400_000, "best_step_time_ms": 7 * 86_400_000,
}  # fmt: skip


class ImpossibleError(AssertionError):
    """A figure, a page or a text that must never occur."""


def check_finite(value: Any, where: str = "") -> None:
    """Raise ImpossibleError if a report has a number that is not finite."""
    for path, number in numbers_in(value, where):
        if not math.isfinite(number):
            raise ImpossibleError(f"{path} is {number}")


def numbers_in(value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Return every number of a report with its path."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers_in(part, f"{where}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from numbers_in(part, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield where, value


def check_possible(report: dict[str, Any]) -> None:
    """Raise ImpossibleError for a trusted value that no machine can have."""
    check_finite(report, "report")
    for key, reading in report["metrics"].items():
        value, low, high = reading["value"], reading.get("low"), reading.get("high")
        if (value is None) is not bool(reading["why_missing"]):
            raise ImpossibleError(f"{key}: a value and a reason why there is none, or neither")
        if value is None or reading["trust"] != "ok":
            continue
        if value < 0 or value > MAX_VALUES.get(key, 1 if key.endswith("_share") else math.inf):
            raise ImpossibleError(f"{key} = {value} with trust ok")
        if (low is not None and low > value * (1 + 1e-9)) or (high is not None and high < value * (1 - 1e-9)):
            raise ImpossibleError(f"{key} = {value} lies outside its interval {low} to {high}")
    ledger_ns = Counter[int]()
    for row in report["ledger"]:
        ledger_ns[row["device"]] += row["ns"]
        if row["ns"] < 0:
            raise ImpossibleError(f"a ledger row of {row['ns']} ns")
    if ledger_ns and report["window_ns"] not in ledger_ns.values():
        raise ImpossibleError(f"the ledger sums to {dict(ledger_ns)}, the window is {report['window_ns']}")


def check_harmless(text: str, format_name: str) -> None:
    """Raise ImpossibleError if a name in a report became markup or control characters."""
    if format_name == "html" and (MARKUP in text or re.search(r"<script|<iframe|javascript:alert\(1\)['\"]", text)):
        raise ImpossibleError("a name became markup in the HTML report")
    if format_name == "md" and MARKUP in re.sub(r"```.*?```", "", text, flags=re.DOTALL):
        raise ImpossibleError("a name became markup in the Markdown report")
    control_characters = {c for c in text if unicodedata.category(c) in ("Cc", "Cs") or c in "‪‫‬‭‮⁦⁧⁨⁩\u200e\u200f"}
    if format_name in ("text", "md") and control_characters - {"\n"}:
        raise ImpossibleError(f"{sorted(map(hex, map(ord, control_characters)))} in the {format_name} report")
