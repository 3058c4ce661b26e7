"""What the table of comparisons counts: calls, wrong directions, mirrored answers and intervals that held."""

from __future__ import annotations

from sawtooth.analysis.compare.significance.certainty import Verdict
from tests.accuracy.comparisons import Judged, summary

FASTER = Verdict("faster", "high", "", (-60.0, -40.0), ratio=(1.8, 2.3))
SLOWER = Verdict("slower", "high", "", (40.0, 60.0), ratio=(1 / 2.3, 1 / 1.8))
NONE = Verdict("no_difference_shown", "high", "", (-5.0, 5.0), ratio=(0.95, 1.05))


def of(true, said, back):
    return Judged("a", "b", true, said, back, telemetry=False)


def test_a_call_is_right_wrong_or_none():
    assert of(2.0, FASTER, SLOWER).right and not of(2.0, FASTER, SLOWER).wrong
    assert of(0.5, FASTER, SLOWER).wrong and of(2.0, SLOWER, FASTER).wrong
    assert of(1.2, NONE, NONE).wrong and not of(1.04, NONE, NONE).wrong  # it left open 1/0.95 − 1 = 5.3 %


def test_the_summary_counts_by_the_size_of_the_true_change():
    traces, _ = summary([of(2.0, FASTER, SLOWER), of(3.5, NONE, NONE), of(1.02, FASTER, FASTER)])
    assert "3 pairs; called 1 of 2 of 1.15 ×, 1 of 2 of 1.3 ×, 1 of 2 of 2 ×, 0 of 1 of 3 ×" in traces
    assert "1 wrong of 3 answers; 1 do not mirror; the ratio's interval held 1 of 3" in traces
