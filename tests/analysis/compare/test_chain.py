"""A chain of real recordings, one change more in each: the audits beside each other, predicted beside measured, against the stopwatch."""

from __future__ import annotations

import json

import pytest

from sawtooth.analysis.compare.chain import chain
from sawtooth.analysis.compare.side import side_of
from sawtooth.app.words.comparisons import chain as words
from tests.support.findings_of import library, result_of
from tests.support.paths import RECORDINGS

NAMES = ("gpt_fp32", "gpt_small", "gpt_compiled")


def stopwatch_ms(name):
    return 1e3 * json.loads((RECORDINGS / name / "truth.json").read_text(encoding="utf-8"))["step_s_pipelined"]


@pytest.fixture(scope="module")
def made():
    return chain([side_of([result_of(name)], library()) for name in NAMES])


def test_every_run_has_its_own_reading_in_every_line(made):
    assert [run.manifest.name for run in made.runs] == list(NAMES)
    assert all(len(line.readings) == len(NAMES) for line in made.lines)
    steps = next(line for line in made.lines if line.row.key == "step_time_ms")
    assert [reading.value for reading in steps.readings] == pytest.approx([stopwatch_ms(name) for name in NAMES], rel=0.1)


def test_a_change_has_what_was_promised_and_what_came_of_it(made):
    first, second = made.changes
    assert "fp32-products" in first.fixed
    assert first.measured_gain_ms == pytest.approx(stopwatch_ms("gpt_fp32") - stopwatch_ms("gpt_small"), rel=0.1)
    assert first.predicted_gain_ms == pytest.approx(first.measured_gain_ms, rel=0.15)
    assert second.before_ms == first.after_ms
    assert second.measured_gain_ms == pytest.approx(stopwatch_ms("gpt_small") - stopwatch_ms("gpt_compiled"), rel=0.25)


def test_the_table_has_a_column_a_run_and_is_markdown(made):
    heads, rows = words.heads(made), words.rows(made)
    assert heads[1:] == list(NAMES) and all(len(row) == len(heads) for row in rows)
    assert {"Predicted gain a step", "Measured gain a step"} <= {row[0] for row in rows}
    lines = words.markdown(made).splitlines()
    assert lines[0].endswith("times as fast") and lines[3] == "| --- | ---: | ---: | ---: |"


def test_a_chain_in_which_nothing_changed_says_so():
    same = chain([side_of([result_of("gpt_small")], library())] * 2)
    (change,) = same.changes
    assert (change.fixed, change.predicted_ms, change.measured_gain_ms) == ((), None, 0.0)
    assert words.rows(same)[-2][2].startswith("none")
