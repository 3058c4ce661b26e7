"""The conditions of two runs in words: what differs, what is the same, and what is not recorded."""

from __future__ import annotations

from sawtooth.analysis.compare.changed.conditions import ENVIRONMENT, EXPECTED, OF_SEVERAL_GPUS, ConditionPair
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import format as fmt

TITLE = "What else differs"
COLUMNS = ("Condition", "A", "B")
VALUE_LENGTH = 60  # Longer values are cut to this many characters.


def rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return the conditions that differ, without those that the page names as the change."""
    changed = {difference.what for effect in comparison.effects for difference in effect.differences}
    return [
        (fmt.clean(pair.what, VALUE_LENGTH), fmt.clean(pair.a or "", VALUE_LENGTH), fmt.clean(pair.b or "", VALUE_LENGTH))
        for pair in comparison.conditions
        if pair.differs and pair.what not in changed
    ]


def unchanged_conditions(comparison: Comparison) -> str:
    """Return which conditions are the same on both sides, and which are unknown on one side or on both."""
    by_key = {pair.key: pair for pair in comparison.conditions}
    expected = {key: name for key, name in EXPECTED.items() if key not in OF_SEVERAL_GPUS or _several_gpus(by_key)}
    unchanged = [
        name for key, name in expected.items() if key in by_key and _both_known(by_key[key]) and not _differs(key, comparison)
    ]
    unknown = [name for key, name in expected.items() if key not in by_key or not _both_known(by_key[key])]
    lines = [("The same on both sides", unchanged), ("Not recorded on one side or on both", unknown)]
    return " ".join(f"{label}: {', '.join(names)}." for label, names in lines if names)


def _both_known(pair: ConditionPair) -> bool:
    return pair.a is not None and pair.b is not None


def _differs(key: str, comparison: Comparison) -> bool:
    """Return whether a condition differs, or an argument or a variable that belongs to it."""
    part_prefix = {"program": "argument ", ENVIRONMENT: "variable "}.get(key)
    return any(
        pair.differs and (pair.key == key or (part_prefix is not None and pair.key.startswith(part_prefix)))
        for pair in comparison.conditions
    )


def _several_gpus(by_key: dict[str, ConditionPair]) -> bool:
    world = by_key.get("world_size")
    return world is not None and {world.a, world.b} != {"1"}
