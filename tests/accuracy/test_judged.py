"""Tests of the judged findings: false critical ones, and planted causes that come first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.run.model import Explains, Finding
from tests.accuracy.judged import judged, summary
from tests.support.actions import act

READS = Finding("host-waits-for-gpu", "critical", "The host waits", act("Read less."), "high", ceiling_ms_per_step=3.0)
LAUNCHES = Finding(
    "launch-bound",
    "critical",
    "The GPU waits for launches",
    act("Use a graph."),
    "medium",
    ceiling_ms_per_step=2.0,
    explains=Explains(topics=frozenset({"host_pace"})),
)


def truths(after_s: float, util: float = 50.0) -> dict[str, dict[str, object]]:
    fix = {"recording": "gpt_no_reads", "change": "nothing is read"}
    return {
        "gpt_reads": {"step_s_pipelined": 0.010, "fixed_by": [fix], "nvml_mean": {"gpu_util": util}},
        "gpt_no_reads": {"step_s_pipelined": after_s, "fixed_by": []},
    }


@pytest.mark.parametrize(("after_s", "false"), [(0.0070, 0), (0.0094, 1), (0.0110, 1)])  # Saves 30 %, 6 % and nothing.
def test_a_critical_finding_whose_fix_saves_little_is_false(after_s: float, false: int) -> None:
    assert len(judged("gpt_reads", [READS], truths(after_s)).false) == false
    assert judged("gpt_reads", [replace(READS, severity="warning")], truths(after_s)).false == ()


def test_launches_do_not_slow_a_gpu_that_is_never_idle() -> None:
    assert judged("gpt_reads", [READS, LAUNCHES], truths(0.007, util=99.0)).false == (LAUNCHES.title,)
    assert judged("gpt_reads", [READS, LAUNCHES], truths(0.007, util=90.0)).false == ()


def test_the_summary_names_cases_whose_finding_is_not_first() -> None:
    good = judged("gpt_reads", [READS, LAUNCHES], truths(0.007))
    late = judged("gpt_reads", [LAUNCHES, replace(READS, severity="warning")], truths(0.007))
    lines = list(summary([good, late]))
    assert lines[0] == "Planted causes first: 1 of 2; not gpt_reads (host-waits-for-gpu)."
    assert lines[1] == "Critical where the fix saves over 20% of the step: 1 of 2; not gpt_reads (host-waits-for-gpu)."
    assert lines[2] == "False critical findings: 0 in 2 recordings."
