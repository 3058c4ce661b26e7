"""Tests of judging predicted numbers of loader workers: groups and right predictions."""

from __future__ import annotations

import json

import pytest

from sawtooth.ingest.manifest import UserFacts
from tests.accuracy.loaders import Judged, groups, rates

# Samples wait 10 ms. Batches of 32 are loaded by two workers on 8 cores.
WAITS = UserFacts(
    loader_workers=2, loader_cores=8, loader_batch=32, loader_sample_ms=10, loader_sample_cpu_ms=0, loader_collate_ms=0
)


def test_runs_that_differ_only_in_their_workers_are_one_group(tmp_path):
    for name, kind, cores in (("a", "waits", 8), ("b", "waits", 8), ("c", "compute", 8), ("d", "waits", 16)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "truth.json").write_text(json.dumps({"kind": kind, "cores": cores}))
        (tmp_path / name / "run.sawtooth").touch()
    (tmp_path / "d/run.sawtooth").unlink()  # not recorded
    assert {kind: list(runs) for kind, runs in groups(tmp_path).items()} == {
        "waits, 8 cores": ["a", "b"],
        "compute, 8 cores": ["c"],
    }


def test_workers_load_batches_during_the_step():
    assert rates(WAITS, 0.080, 0)[0] == pytest.approx(32 / (0.320 + 0.080))
    assert rates(WAITS, 0.080, 2)[0] == pytest.approx(200)
    assert rates(WAITS, 0.080, 8)[0] == pytest.approx(400)  # The workers can load 800, but the step alone takes 80 ms.
    assert rates(UserFacts(), 0.080, 2) is None


def test_a_prediction_between_two_stopwatches_has_no_error():
    assert Judged("waits", (2, 4), (400, 440), 420, 410, 430).error == 0
    above = Judged("waits", (2, 4), (440, 400), 484, 450, 500)
    assert above.error == pytest.approx(0.1) and not above.in_interval
    assert above.line() == "| waits | 2 | 4 | 440, 400 | 484 (450 to 500) | +10% | no |"
