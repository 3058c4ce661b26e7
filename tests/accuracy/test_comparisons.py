"""Tests of the counts in the table of comparisons.

They are found changes, wrong directions, mirrored verdicts and intervals.
"""

from __future__ import annotations

import json
from dataclasses import replace

from sawtooth.analysis.compare.significance.certainty import Verdict
from tests.accuracy.comparisons import Judged, JudgedInterval, alarms, intervals, summary, watch

FASTER = Verdict("faster", "high", "", (-60.0, -40.0), ratio=(1.8, 2.3))
SLOWER = Verdict("slower", "high", "", (40.0, 60.0), ratio=(1 / 2.3, 1 / 1.8))
NONE = Verdict("no_difference_shown", "high", "", (-5.0, 5.0), ratio=(0.95, 1.05))


def judged(true, a_to_b, b_to_a):
    return Judged("a", "b", true, a_to_b, b_to_a, telemetry=False)


def test_a_verdict_is_right_wrong_or_neither():
    assert judged(2.0, FASTER, SLOWER).right and not judged(2.0, FASTER, SLOWER).wrong
    assert judged(0.5, FASTER, SLOWER).wrong and judged(2.0, SLOWER, FASTER).wrong
    assert judged(1.2, NONE, NONE).wrong and not judged(1.04, NONE, NONE).wrong  # It does not exclude 1/0.95 − 1 = 5.3 %.


def test_the_summary_counts_by_the_size_of_the_true_change():
    traces, of_gpu, *_ = summary([judged(2.0, FASTER, SLOWER), judged(3.5, NONE, NONE), judged(1.02, FASTER, FASTER)])
    assert (
        "3 pairs. Right direction: 1 of 2 of 1.15 × or more, 1 of 2 of 1.3 × or more, 1 of 2 of 2 × or more, 0 of 1 of 3 × or more."
        in traces
    )
    assert (
        "1 of 3 answers are wrong. 1 change if A and B are swapped. 1 of 3 closed intervals contain the stopwatch's ratio."
        in traces
    )
    assert of_gpu.startswith("  The GPU limits the step. Right direction: 1 of 2 of 1.15 × or more")


def test_false_alarms_are_counted_by_source_limit_and_confidence():
    low = replace(FASTER, confidence="low")
    gpu, host = Judged("a", "a", 1.0, NONE, NONE, telemetry=True), Judged("a", "a", 1.0, low, SLOWER, telemetry=True, host=True)
    table = list(alarms([gpu, host, replace(host, a_to_b=FASTER)]))
    assert table[2] == "| telemetry | GPU | 0 of 1 (0 to 79 %) | 0 of 1 (0 to 79 %) |"
    assert table[3] == "| telemetry | host | 2 of 2 (34 to 100 %) | 1 of 2 (9.5 to 91 %) |"


def test_intervals_are_counted_by_source_and_limit():
    (row,) = intervals(
        "ratio",
        [JudgedInterval(True, 1.2, True, True), JudgedInterval(False, 1.1, True, True), JudgedInterval(True, 1.4, True, True)],
    )
    assert row == "| ratio | telemetry | host | 2 of 3 (21 to 94 %) | 1.20 |"


def test_the_mean_of_both_stopwatches_counts(tmp_path):
    (tmp_path / "truth.json").write_text(json.dumps({"step_s_pipelined": 0.02, "step_s_after_profile": 0.03}), encoding="utf-8")
    assert watch(tmp_path) == 0.02 and watch(tmp_path, both=True) == 0.025
