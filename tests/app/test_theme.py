"""Tests of colours: one class has one colour, readable in both themes."""

import re

import pytest

from sawtooth.analysis.knowledge import causes, owners
from sawtooth.app import templates
from sawtooth.app.charts.base import marker
from sawtooth.app.theme import (
    CAUSES,
    HOST_KINDS,
    OWNERS,
    PALETTE,
    QUANTITIES,
    STEPS,
    TEXTURES,
    UNKNOWN,
    Colour,
    colour_of,
    ink_on,
    luminance,
)


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(
    ("key", "colour"),
    [*OWNERS.items(), *CAUSES.items(), *QUANTITIES.items(), *HOST_KINDS.items(), *STEPS.items(), ("unknown", UNKNOWN)],
)
def test_every_class_has_contrast_with_the_page_in_both_themes(key: str, colour: object) -> None:
    # WCAG 1.4.11: graphical objects need a contrast of 3:1 against their surroundings
    assert _contrast(colour.light, "#FFFFFF") >= 3, key
    assert _contrast(colour.dark, "#14171A") >= 3, key


@pytest.mark.parametrize(("key", "colour"), QUANTITIES.items())
def test_every_line_colour_has_the_contrast_of_text(key: str, colour: Colour) -> None:
    # WCAG 1.4.3: it is written as text, above each panel
    assert _contrast(colour.light, "#FFFFFF") >= 4.5 and _contrast(colour.dark, "#14171A") >= 4.5, key


@pytest.mark.parametrize("colour", [*(light for light, _, _ in PALETTE.values()), *(dark for _, dark, _ in PALETTE.values())])
def test_text_is_readable_on_every_colour(colour: str) -> None:
    assert luminance("#FFFFFF") == pytest.approx(1) and luminance("#000000") == 0
    assert _contrast(ink_on(colour), colour) >= 4.5


def test_every_owner_and_cause_has_its_colour_and_its_name() -> None:
    for row, colours in [*((o, OWNERS) for o in owners.OWNERS), *((c, CAUSES) for c in causes.CAUSES)]:
        assert (colours[row.key].light, colours[row.key].dark, colours[row.key].hatched) == PALETTE[row.colour]
        assert colours[row.key].label == row.label
    assert colour_of("idle", "data_wait") is CAUSES["data_wait"]
    assert colour_of("idle") is OWNERS["idle"]


def test_an_owner_without_a_cause_keeps_its_colour_and_name() -> None:
    assert colour_of("exposed_comm", "unattributed") is OWNERS["exposed_comm"]
    assert colour_of("exposed_memcpy", "unattributed") is OWNERS["exposed_memcpy"]
    assert colour_of("idle", "unattributed") is CAUSES["unattributed"]


def test_measured_lines_share_no_colour_with_owners_and_causes() -> None:
    for theme in ("light", "dark"):
        classes = {getattr(c, theme) for c in (*OWNERS.values(), *CAUSES.values())}
        assert classes.isdisjoint(getattr(c, theme) for c in QUANTITIES.values())


def test_causes_with_similar_colours_differ_in_texture() -> None:
    """Simulated for people who see no red or no green, these pairs have nearly one colour."""
    for one, other in (
        ("vermilion", "sienna"),
        ("vermilion", "ochre"),
        ("crimson", "sienna"),
        ("crimson", "umber"),
        ("violet", "indigo"),
    ):
        assert TEXTURES.get(one) != TEXTURES.get(other), (one, other)


def test_neighbouring_greys_are_distinguishable() -> None:
    # Memset, launch latency and unexplained time are in one legend. They differ by hue, or by texture where everything is
    # grey.
    looks = [PALETTE[name][0] for name in ("ash", "slate", "fog")]
    for i, one in enumerate(looks):
        for other in looks[i + 1 :]:
            separate = [abs(int(one[k : k + 2], 16) - int(other[k : k + 2], 16)) for k in (1, 3, 5)]
            assert max(separate) >= 32, (one, other)


def test_no_two_causes_share_a_colour_in_a_theme_except_by_design() -> None:
    for theme in ("light", "dark"):
        colours = [getattr(c, theme) for c in CAUSES.values()]
        assert len(colours) == len(set(colours))


def test_a_texture_is_equally_strong_in_html_and_in_plotly() -> None:
    css = (templates.FOLDER / "textures.css").read_text(encoding="utf-8")
    (percent,) = set(re.findall(r"255 255 255 / (\d+)%", css))
    pattern = marker(CAUSES["data_wait"], dark=False)["pattern"]
    assert pattern["fgcolor"] == f"rgba(255,255,255,0.{percent})" and pattern["fgopacity"] == 1
