"""Tests of one training compared with itself: both sides have profiled steps of one run.

The losses of later steps are reported only if these steps are slower.
"""

from __future__ import annotations

import msgspec
import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import limits, profiles_of_one_run
from tests.support.actions import act
from tests.support.run_results import run_of, side

MS = 1_000_000
STEPS = 40


def stretch(identifier, step, *, allocator_ms, compute_ms=7.0, notes="Recorded by `sawtooth run train.py`.", findings=()):
    """Return forty steps of compute, 3 ms of launches, and the allocator's time."""
    parts = [("other_compute", None, compute_ms), ("idle", "launch_bound", 3.0), ("idle", "allocator", allocator_ms)]
    ledger = tuple((owner, cause, int(ms * STEPS * MS), ms) for owner, cause, ms in parts if ms)
    run = run_of(identifier * 16, ledger=ledger, counted=STEPS, settings={"step": str(step)} if step else {})
    run.findings.extend(findings)
    object.__setattr__(run, "manifest", msgspec.structs.replace(run.manifest, notes=notes))
    return side(run)


def test_a_slower_later_step_names_the_growing_part():
    comparison = compare(stretch("a", 1000, allocator_ms=0.0), stretch("b", 40_000, allocator_ms=0.8))
    assert words.headline(comparison).startswith("step 40,000 takes about 1.08\u00a0× as long as step 1,000")
    (sentence, *_) = limits.sentences(comparison)
    assert sentence.startswith("Most of the change is allocator, +800\u00a0µs per step: memory is allocated and freed")
    assert "fragmented" not in sentence, "nothing shows it"


def test_evidence_of_the_cause_in_the_later_profile_is_named():
    title, fix = "Memory is fragmented (2 of 7 GB free): the allocator asks again", "Use expandable segments."
    finding = Finding("allocator-churn", "warning", title, act(fix), "high", 0.8, explains=Explains(("allocator",)))
    comparison = compare(stretch("a", 1000, allocator_ms=0.0), stretch("b", 40_000, allocator_ms=0.8, findings=[finding]))
    assert profiles_of_one_run.why_longer(comparison).endswith(f"per step: {title}. {fix}")


@pytest.mark.parametrize(
    "later",
    [
        stretch("b", 40_000, allocator_ms=0.05),  # 0.5 %: nothing shown
        stretch("b", 40_000, allocator_ms=0.0, compute_ms=6.0),  # faster
        stretch("b", 40_000, allocator_ms=0.8, notes="Recorded by `sawtooth run other.py`."),  # another training
        stretch("b", None, allocator_ms=0.8),
    ],
)
def test_without_evidence_no_cause_is_named(later):
    assert profiles_of_one_run.why_longer(compare(stretch("a", 1000, allocator_ms=0.0), later)) is None
