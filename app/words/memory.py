"""Memory in sentences: what its free part is good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sawtooth.app import format as fmt

HARDLY = 1.05  # times the samples a second: less is not worth another batch
WIDE = 2.0  # times its low end: an interval that says more than the number inside it


def larger_batches(evidence: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]] | None:
    """Return whether a larger batch pays, and what each gives, from rows of ``analysis.findings.batch.step``; None where none was predicted."""
    rows = [row for row in evidence if "batch_times" in row]
    if not rows:
        return None
    best = max(rows, key=lambda row: row["samples_per_second_times"])
    rate = float(best["samples_per_second_times"])
    if any(map(_of_the_host, rows)):
        title = "A larger batch fits: its step is about as long as the host takes"
    elif rate < HARDLY:
        title = "A larger batch fits and hardly pays: this one keeps the GPU busy"
    elif rate * best["step_ms"] <= best["high_ms"]:  # at the far end of the interval it brings nothing
        title = f"A larger batch fits and may pay: ≈\u00a0{fmt.factor(rate)} the samples a second"
    else:
        title = f"A larger batch fits and pays: ≈\u00a0{fmt.factor(rate)} the samples a second"
    return title, [_line(row) for row in rows]


def _of_the_host(row: Mapping[str, Any]) -> bool:
    return bool(row["high_ms"] > WIDE * row["low_ms"])


def _line(row: Mapping[str, Any]) -> str:
    ends, rate = fmt.span_ms(row["low_ms"], row["high_ms"]), float(row["samples_per_second_times"])
    memory = f", {fmt.bytes_(row['memory_bytes'])} in use" if row["memory_bytes"] is not None else ""
    if _of_the_host(row):
        most = rate * row["step_ms"] / max(row["low_ms"], 1e-6)
        return f"{row['batch_times']:g}\u00a0× the batch: {ends} a step, up to {fmt.factor(most)} the samples a second{memory}."
    step = f"≈\u00a0{fmt.duration_ms(row['step_ms'])} ({ends})"
    return f"{row['batch_times']:g}\u00a0× the batch: {step} a step, ≈\u00a0{fmt.factor(rate)} the samples a second{memory}."
