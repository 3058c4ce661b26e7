"""Tests of the title of a comparison: what was changed, both step times, and the factor."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from sawtooth.analysis.compare.changed.differences import Effect, SetupDifference, differences
from sawtooth.analysis.compare.changed.setup_traits import traits_of
from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.waterfall import RunRow
from sawtooth.app.charts.step_pair import Ratio
from sawtooth.app.words.answer.headline_length import MAX_WORDS, words
from sawtooth.app.words.comparisons import intervals, setup_changes, title
from tests.support.measured_sides import bounded
from tests.support.run_results import run_of, side


def compared(a_ms: float, b_ms: float, *effects: Effect) -> Comparison:
    """Compare an estimate from telemetry with a profile."""
    sides = []
    for name, source, ms in (("a", "telemetry", a_ms), ("b", "profile", b_ms)):
        run = run_of(name * 16, best_ms=ms, source=source)
        sides.append(replace(side(run), measured=(bounded(ms, 0.95 * ms, 1.05 * ms, name, source),)))
    return replace(compare(*sides), effects=effects)


def effect(what: str, a: str, b: str, share: float | None) -> Effect:
    return Effect((SetupDifference(what, what, a, b, (), ()),), (), share)


def text(comparison: Comparison) -> str:
    found = title.title(comparison)
    assert found is not None
    said = "".join(piece for _, piece in found.pieces).replace("\u00a0", " ")
    assert words("".join(piece.replace(" × as fast", "×") for _, piece in found.pieces)) <= MAX_WORDS + 2  # "as fast"
    return said


def test_the_title_names_the_setting_with_most_of_the_gain() -> None:
    workers, other = effect("Loader workers", "1", "14", 0.99), effect("Optimizer", "foreach", "fused", 0.01)
    assert text(compared(776.0, 157.0, workers)) == "Loader workers 1 → 14: ≈ 776 → 157 ms per step 4.94 × as fast"
    assert text(compared(776.0, 157.0, other, workers)).startswith("Loader workers 1 → 14 and 1 more: ≈ 776 → 157 ms")
    assert text(compared(157.0, 776.0, effect("Optimizer", "fused", "foreach", None))).endswith(
        "776 ms per step 4.94 × as long"
    )


@pytest.mark.parametrize(("a_ms", "b_ms", "kinds"), [(776.0, 157.0, {"then", "badge"}), (157.0, 776.0, {"worse", "slower"})])
def test_a_slower_step_has_the_colour_of_trouble(a_ms: float, b_ms: float, kinds: set[str]) -> None:
    found = title.title(compared(a_ms, b_ms, effect("Loader workers", "1", "14", 0.99)))
    assert found is not None and {kind for kind, _ in found.pieces} - {"text"} == kinds


def test_without_a_recorded_setting_the_title_names_the_part_of_the_step() -> None:
    found = title.title(compared(776.0, 157.0))
    assert found is not None and " → " in found.cause and found.cause[0].isupper()
    assert title.title(compared(100.0, 99.0)) is None, "the size of the change is not known"


def test_below_the_title_is_what_its_setting_explains() -> None:
    workers = replace(
        effect("Loader workers", "1", "14", 1.0), parts=(RunRow("idle", "data_wait", Fraction(595), Fraction(0)),)
    )
    found = compared(776.0, 157.0, workers)
    named = title.named_setting(found)
    assert named is not None
    sentence = setup_changes.explanation(named, found).replace("\u00a0", " ")
    assert sentence.startswith("This explains 100 % of the gain: data loader 595 ms → none")


def test_the_list_of_changes_does_not_repeat_the_title() -> None:
    """The line below the title has the share of its setting. The list has the other settings."""
    workers = replace(
        effect("Loader workers", "1", "14", 0.98), parts=(RunRow("idle", "data_wait", Fraction(595), Fraction(0)),)
    )
    found = compared(776.0, 157.0, workers, effect("Optimizer", "foreach", "fused", None))
    named = title.named_setting(found)
    assert named is not None and text(found).startswith("Loader workers 1 → 14 and 1 more: ")
    assert setup_changes.explanation(named, found).replace("\u00a0", " ").startswith("1 → 14 explains 98 % of the gain: data")
    assert [row[:3] for row in setup_changes.rows(found, named)] == [("Optimizer", "foreach", "fused")]
    assert len(setup_changes.rows(found)) == 2


def test_a_title_is_never_cut_inside_its_values() -> None:
    """A setting with long values first loses the number of other settings, then its values."""
    reads = effect("Reads of GPU values", "none", "64 per step", 0.9)  # 8 words, 2 times and a factor: 11 of 12.
    assert text(compared(22.0, 32.3, reads)).startswith("Reads of GPU values none → 64 per step: ≈ 22.0 → 32.3 ms")
    assert text(compared(22.0, 32.3, reads, effect("GPUs", "1", "2", None))).startswith(
        "Reads of GPU values none → 64 per step: "
    )
    long = effect("Reads of GPU values", "on two of the five steps", "on all of them", 0.9)
    found = compared(22.0, 32.3, long)
    assert text(found).startswith("Reads of GPU values: ≈ 22.0 → 32.3 ms") and title.named_setting(found) is None


@pytest.mark.parametrize("tag", ["workers", "num_workers"])
def test_workers_in_a_tag_are_the_loader_workers(tag: str) -> None:
    a, b = (traits_of(run_of(tags=[f"{tag}={count}"]), None) for count in (2, 8))
    (found,) = differences(a, b, (), ())
    assert (found.key, found.what, found.a, found.b) == ("loader", "Loader workers", "2", "8")


def test_an_interval_of_80_percent_is_the_inner_part_of_the_interval_of_95_percent() -> None:
    # The logarithm has a standard deviation of 0.1 below and 0.2 above; the quantiles are 1.95996 and 1.28155.
    low, high = intervals.interval_80(5.0, 5.0 * math.exp(-0.195996), 5.0 * math.exp(0.391993))
    assert low == pytest.approx(5.0 * math.exp(-0.128155), rel=1e-4)
    assert high == pytest.approx(5.0 * math.exp(0.256310), rel=1e-4)


def test_one_picture_names_one_level() -> None:
    recorded, predicted = Ratio("recorded", 5.0, 4.6, 5.4), Ratio("predicted", 5.0, 3.8, 5.2, predicted=True)
    assert intervals.level([predicted, recorded]).replace("\u00a0", " ") == "80 % intervals"
    assert intervals.level([recorded]).replace("\u00a0", " ") == "95 % interval"
