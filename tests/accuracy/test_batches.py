"""Tests of predicted batch sizes on the usual example: from 32 to 256 and back.

They are compared with the stopwatch of the other run.
"""

from __future__ import annotations

import json

import pytest

from tests.accuracy.batches import groups, judge
from tests.support.findings_of import library
from tests.support.paths import USUAL_EXAMPLE


def test_runs_that_differ_only_in_the_batch_are_one_group(tmp_path):
    for name, batch, bf16 in (("a", 8, True), ("b", 16, True), ("c", 16, False), ("d", 16, False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sawtooth").touch()
        (tmp_path / name / "truth.json").write_text(
            json.dumps({"batch": batch, "samples_per_step": batch, "bf16": bf16, "step_s": 1})
        )
    assert {model: list(runs) for model, runs in groups(tmp_path).items()} == {"a": ["a", "b"]}


def test_prediction_for_a_larger_batch_is_compared_with_its_stopwatch():
    judged = {one.sizes: one for one in judge(USUAL_EXAMPLE, library())}
    assert set(judged) == {(32, 256), (256, 32)}
    larger = judged[32, 256]
    assert larger.error == pytest.approx(0, abs=0.15) and larger.in_interval
    assert larger.line().startswith("| batch | 32 | 256 | 6,930 |")
    # The host limits the step of the smaller batch. Its time is from the whole trace, because the counted steps alone gave an
    # error of +69 %.
    smaller = judged[256, 32]
    assert smaller.error == pytest.approx(0, abs=0.4) and smaller.in_interval
