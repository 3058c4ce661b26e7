"""Colours: one class, one colour, readable in both themes."""

import re
from pathlib import Path

import pytest

from app.theme import CAUSES, OWNERS, colour_of

ROOT = Path(__file__).parents[1]


def _luminance(hex_colour: str) -> float:
    channels = [int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("key", "colour"), [*OWNERS.items(), *CAUSES.items()])
def test_every_class_can_be_told_from_the_page_in_both_themes(key: str, colour: object) -> None:
    # 1.5: a filled area beside a word needs to be seen, not read; greys are quiet on purpose
    assert _contrast(colour.light, "#FFFFFF") >= 1.5, key
    assert _contrast(colour.dark, "#14171A") >= 1.5, key


def test_every_owner_and_cause_of_the_store_has_a_colour() -> None:
    sql = (ROOT / "analysis" / "derived.sql").read_text()
    owners = re.search(r"segments\.owner IS '([^']*)'", sql)[1].replace(" or ", ", ").split(", ")
    assert set(owners) == set(OWNERS)
    assert colour_of("idle", "data_wait") is CAUSES["data_wait"]
    assert colour_of("idle") is OWNERS["idle"]


def test_no_two_causes_share_a_colour_in_a_theme_except_by_design() -> None:
    for theme in ("light", "dark"):
        colours = [getattr(c, theme) for c in CAUSES.values()]
        assert len(colours) == len(set(colours))
