"""Tests of a trace that names more GPUs than one process drives.

The GPUs with the most work are analysed, the others are counted.
"""

from __future__ import annotations

from pathlib import Path

import sawtooth
from sawtooth.analysis.derive.build import MAX_ANALYSED
from tests.support.chrome_trace import ChromeTrace


def test_gpus_with_the_most_operations_are_analysed_and_others_are_reported(tmp_path: Path) -> None:
    trace, gpus, few = ChromeTrace(), MAX_ANALYSED + 4, (0, 3, 5, 9)
    for step in range(3):
        trace.step(step + 1, 1000 * step, 1000 * step + 1000)
        for gpu in range(gpus):
            for number in range(1 if gpu in few else 2):
                begin = 1000 * step + 20 * gpu + 400 * number
                trace.launch((begin, begin + 5), (begin + 10, begin + 300), "k", device=gpu)
    report = sawtooth.analyse(trace.write(tmp_path / "many.json"))
    result = report.result
    assert [rank.device for rank in result.ranks] == [gpu for gpu in range(gpus) if gpu not in few]
    reported = [d for d in result.diagnostics if d.key == "gpus_left_out"]
    assert [(d.count, d.severity) for d in reported] == [(4, "data_loss")]
