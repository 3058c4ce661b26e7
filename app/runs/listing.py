"""Search, order and group runs, and show the history of step time and MFU of a tag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import pandas as pd

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import ALIASES
from sawtooth.analysis.run.model import may_gain_nothing
from sawtooth.app import format as fmt
from sawtooth.ingest.manifest import Manifest

# Links contain these keys, so they must not change.
ORDERS = {
    "newest": "Newest first",
    "name": "Name",
    "step_time_best_ms": "Fastest step first",
    "mfu": "Highest MFU first",
    "busy": "Least busy GPU first",
}
GROUPS = {"none": "No groups", "tag": "By tag", "loss": "By what they lose most to"}
NO_TAG, AT_WORK = "without a tag", "the GPU at work, or no known cause"
SLOWER_RATIO = 1.01  # Ratio of the new step to the old one above which a run is called slower.
HISTORY = ("best_step_time_ms", "mfu")

_OF_GPU = re.compile(r"\b(?:NVIDIA|AMD|Intel|Tesla|GeForce|Instinct)\s|\s(?:\d+GB|HBM\w*|SXM\d?|PCIe)\b.*")
_NUMBERS = re.compile(r": (?=up to |the GPU is busy |(?:≈\s)?[\d.,]+.* → )")

Readings = Mapping[str, Mapping[str, Reading]]  # By run id, then by metric key.


def listed(manifests: Sequence[Manifest], included: Collection[str] = ()) -> list[Manifest]:
    """Return the runs that lists show: the user's own runs and the runs whose ids are ``included``.

    The bundled examples are shown as long as there are no other runs.
    """
    own_runs = [m for m in manifests if not m.bundled]
    return [m for m in manifests if not m.bundled or m.id in included] if own_runs else list(manifests)


def matching_runs(manifests: Sequence[Manifest], searched: str, tag: str | None = None) -> list[Manifest]:
    """Return the runs with ``searched`` in name, tags, notes or id, ignoring case, and with ``tag``."""
    sought = searched.strip().lower()
    return [
        m
        for m in manifests
        if sought in f"{m.name} {m.id} {' '.join(m.tags)} {m.notes}".lower() and (tag is None or tag in m.tags)
    ]


def ordered(
    manifests: Sequence[Manifest], by: str, readings: Readings, busy: Mapping[str, float | None] = MappingProxyType({})
) -> list[Manifest]:
    """Return the runs in one of ORDERS; runs without the reading come last, newest first.

    ``busy`` is the GPU's busy share of the step by run id.
    """
    newest = sorted(manifests, key=lambda m: -m.created_ns)
    if by == "name":
        return sorted(newest, key=lambda m: m.name.casefold())
    if by == "busy":
        measured_runs = [m for m in newest if busy.get(m.id) is not None]
        return [*sorted(measured_runs, key=lambda m: busy[m.id] or 0.0), *(m for m in newest if m not in measured_runs)]
    by = ALIASES.get(by, by)
    if by not in HISTORY:
        return newest
    sign = -1 if by == "mfu" else 1

    def key(manifest: Manifest) -> tuple[bool, float]:
        value = _value(readings, manifest, by)
        return (value is None, sign * (value or 0.0))

    return sorted(newest, key=key)


def tags(manifests: Sequence[Manifest]) -> list[str]:
    """Return the tags in use, in alphabetical order."""
    return sorted({tag for manifest in manifests for tag in manifest.tags}, key=str.casefold)


def headline(lost_to: Sequence[str]) -> str | None:
    """Return a sentence about the most common main loss of the runs; None if no two runs have the same.

    ``lost_to`` is the main loss of each run, or "".
    """
    most_frequent = Counter(filter(None, lost_to)).most_common(1)
    if not most_frequent or most_frequent[0][1] < 2:
        return None
    return f"{most_frequent[0][1]} of {len(lost_to)} runs lose most to {most_frequent[0][0]}"


def gain(step_ms: float | None, after: tuple[float, float, float] | None) -> str | None:
    """Return how many times as fast the step can be; None if that is not known."""
    if not step_ms or after is None or after[0] >= step_ms:
        return None
    ms, low, high = after
    if may_gain_nothing(high, step_ms):
        return f"up to {fmt.factor(step_ms / low)}"
    return fmt.speedup(step_ms / ms)


def change(before_ms: float, after_ms: float) -> str:
    """Return a measured change of the step, such as "50.8 → 39.0 ms", or "11.2 → 12.6 ms, slower"."""
    slower = ", slower" if after_ms > SLOWER_RATIO * before_ms else ""
    return fmt.step_change(before_ms, after_ms, after_about="") + slower


def tries(manifest: Manifest) -> bool:
    """Return whether the run is a trial of a change by `sawtooth try`."""
    kinds = {tag.partition("=")[0] for tag in manifest.tags}
    return {"try", "after"} <= kinds


def most_to_gain(runs: Sequence[tuple[str, float | None, tuple[float, float, float] | None, int]]) -> str | None:
    """Return a sentence about the run with the largest certain gain; None if fewer than two runs have one.

    The gain in the sentence is the result of ``gain``, as in the list of runs. ``runs`` are names, steps in ms, predicted
    steps with their intervals, and the numbers of changes that lead to them.
    """
    candidates = [
        (after[2] / step_ms, name, faster, changes)
        for name, step_ms, after, changes in runs
        if step_ms and after and (faster := gain(step_ms, after)) is not None
    ]
    candidates = [candidate for candidate in candidates if candidate[0] < 1]
    if len(candidates) < 2:
        return None
    _, name, faster, changes = min(candidates)
    named = {1: "one change", 2: "both changes"}.get(changes, f"all {changes} changes")
    return f"{fmt.clean(name, 90)} can gain most: {faster}{' as fast' if faster.endswith('×') else ' per step'} with {named}"


def short_gpu(name: str) -> str:
    """Return a GPU's name for a narrow column: "8 × H100" for "8 × NVIDIA H100 80GB HBM3"."""
    return _OF_GPU.sub("", name).strip()


def to_do(headline: str) -> str:
    """Return a headline without the numbers that are in other columns: the change, or "Healthy"."""
    return _NUMBERS.split(headline, maxsplit=1)[0]


def grouped(manifests: Sequence[Manifest], by: str, lost_to: Mapping[str, str]) -> list[tuple[str, list[Manifest]]]:
    """Return the runs in sorted groups: by tag, by main loss, or all in one group.

    A run with several tags is in several groups.
    """
    groups: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        names = {"tag": list(manifest.tags) or [NO_TAG], "loss": [lost_to.get(manifest.id) or AT_WORK]}.get(by, [""])
        for name in names:
            groups.setdefault(name, []).append(manifest)
    return sorted(groups.items(), key=lambda group: (group[0] in (NO_TAG, AT_WORK), -len(group[1]) if by == "loss" else 0))


def history(manifests: Sequence[Manifest], readings: Readings) -> pd.DataFrame:
    """Return a table of runs in the order of import: run, name, step_ms and mfu (NaN if unknown)."""
    runs = sorted(manifests, key=lambda m: m.created_ns)
    rows = [(m.id, m.name, *(_value(readings, m, key) for key in HISTORY)) for m in runs]
    frame = pd.DataFrame(rows, columns=["run", "name", "step_ms", "mfu"])
    return frame.astype({"step_ms": float, "mfu": float})


def history_title(tag: str, rows: pd.DataFrame) -> str:
    """Return the change of step time and MFU from a tag's first run to its last."""
    parts = []
    for column, name, text in (("step_ms", "step", fmt.duration_ms), ("mfu", "MFU", fmt.share)):
        values = rows[column].dropna()
        if len(values) > 1:
            parts.append(f"{name} {text(values.iloc[0])} → {text(values.iloc[-1])}")
    return f"{fmt.clean(tag, 40)}, {len(rows)} runs: {', '.join(parts) or 'no two of them have a step time'}"


def _value(readings: Readings, manifest: Manifest, key: str) -> float | None:
    reading = readings.get(manifest.id, {}).get(key)
    return reading.value if reading is not None else None
