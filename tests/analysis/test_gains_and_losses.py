"""No report contradicts itself.

Gains agree with losses, the step after a change with the GPU's need, and the plan with the headline.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sawtooth.analysis.findings.model import MORE_THAN_LOSS, TITLE_WITH_REST
from sawtooth.analysis.reading_order import lead_finding
from sawtooth.analysis.replay.edits import AsGraph, FasterHost, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Finding, may_gain_nothing
from sawtooth.app.words.advice import plan_title
from tests.support.findings_of import context_of, result_of
from tests.support.paths import RECORDED_AFTER, RECORDINGS, SAMPLES

ALL = [
    f.name for root in (RECORDINGS, RECORDED_AFTER, SAMPLES) for f in sorted(root.iterdir()) if any(f.glob("*trace.json.gz"))
]
QUICK = ("mlp_eager", "channels_first")
DURATION = re.compile(r"([\d.,]+)\s(ns|µs|ms|s)\b")
MS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
ALSO = TITLE_WITH_REST.format(title="", rest="")
# These changes remove host calls, which may have launched GPU work.
OF_THE_HOST = (AsGraph, WithoutHostCause, FasterHost, WithoutWaits)
ROUNDED = 0.01


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ALL])
def test_no_report_contradicts_itself(name: str) -> None:
    result, first = result_of(name), lead_finding(result_of(name))
    gained_more = [f"{f.gain_ms:.3g} ms: {f.title}" for f in result.findings if _gains_more(f)]
    assert not gained_more, "a title names other losses if the gain exceeds its own loss"
    rules = {finding.rule for finding in result.findings}
    assert not {"small-batch", "memory-headroom"} <= rules, "one answer about the batch size"
    if plan_title(result) is not None and first is not None and not first.ends_the_run:
        assert first.rule in {step.rule for step in result.plan}
    if result.plan:
        start = next(step for step in result.plan if not step.prepares)
        needed = {rule for finding in result.findings for rule in finding.needs_first}
        assert start.rule in needed or not may_gain_nothing(start.predicted_high_ms, start.before_ms)
    if result.lead is not None:
        with context_of(name) as context:
            needs_ms = context.gpu_work_ms()
        for finding in result.findings:
            if finding.predicted_step_ms and finding.edits and all(isinstance(edit, OF_THE_HOST) for edit in finding.edits):
                assert finding.predicted_step_ms >= (1 - ROUNDED) * needs_ms, finding.title


def _gains_more(finding: Finding) -> bool:
    """Return whether the gain exceeds the largest time in the title, and the title names no other loss."""
    if finding.claims not in ("gain", "ceiling") or ALSO in finding.title:
        return False
    stated = [float(ms.replace(",", "")) * MS[unit] for ms, unit in DURATION.findall(finding.title.partition("; after ")[0])]
    return bool(stated) and finding.gain_ms > (MORE_THAN_LOSS + ROUNDED) * max(stated)


def test_the_check_finds_a_gain_above_its_loss() -> None:
    stated = result_of(QUICK[0]).findings[0]
    assert ALSO in stated.title and _gains_more(replace(stated, title=stated.title.partition(ALSO)[0]))
