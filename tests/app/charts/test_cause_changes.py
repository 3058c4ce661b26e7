"""Tests of the signed bars by cause."""

import pytest

from sawtooth.app.charts.cause_changes import MAX_BARS, cause_changes
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.theme import UNKNOWN


def place(css: str) -> float:
    return float(css.rstrip("%"))


def test_bars_share_a_scale_and_lie_on_the_side_of_their_sign() -> None:
    bars = [WaterfallBar("idle", "data_wait", 90.0, 10.0), WaterfallBar("other_compute", None, 10.0, 30.0)]
    changes = cause_changes(bars, dark=False)
    assert changes is not None
    gain, loss = changes.rows
    assert (gain.name, loss.name) == ("data loader", "other compute")
    assert place(gain.left) + place(gain.width) == pytest.approx(place(changes.zero)) == pytest.approx(place(loss.left))
    assert place(gain.width) == pytest.approx(4 * place(loss.width))
    assert [text.replace("\u00a0", " ") for text in (gain.text, loss.text, changes.total)] == [
        "−80.0 ms",
        "+20.0 ms",
        "−60.0 ms",
    ]


def test_small_causes_share_a_bar_so_that_bars_sum_to_the_step() -> None:
    causes = ("data_wait", "host_sync", "launch_bound", "python_host", "allocator", "compilation")
    bars = [WaterfallBar("idle", cause, 0.0, ms) for cause, ms in zip(causes, (100.0, 50.0, 25.0, 12.0, 6.0, 3.0), strict=True)]
    changes = cause_changes(bars, dark=False)
    assert changes is not None and len(changes.rows) == MAX_BARS + 1
    assert (changes.rows[-1].name, changes.rows[-1].text.replace("\u00a0", " ")) == ("everything else", "+9.00 ms")
    assert sum(place(row.width) for row in changes.rows) == pytest.approx(196.0, abs=0.1), "of the longest bar, which has 100 %"


def test_an_unresolved_change_is_grey_and_labelled() -> None:
    changes = cause_changes([WaterfallBar("idle", "data_wait", 9.0, 1.0, resolved=False)], dark=False)
    assert changes is not None and changes.rows[0].colour == UNKNOWN.on(dark=False) and "not resolved" in changes.rows[0].name


def test_equal_steps_have_no_bars() -> None:
    assert cause_changes([WaterfallBar("idle", "data_wait", 9.0, 9.0)], dark=False) is None
