"""Tests of the findings that a comparison calls fixed or new."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Explains, PlanStep
from sawtooth.analysis.telemetry.host import HostLoad
from tests.support.run_results import finding_of, run_of, side


def test_findings_are_fixed_or_new_unless_the_other_side_could_not_check_them():
    a = run_of("a" * 16, findings=["loader", "sync", "memory"])
    b = run_of("b" * 16, findings=["sync", "fusion"], not_checked=["memory"])
    found = compare(side(a), side(b))
    assert [f.rule for f in found.findings_fixed] == ["loader"]
    assert [f.rule for f in found.findings_new] == ["fusion"]
    assert found.not_comparable_findings == ("memory",)


def test_a_finding_is_fixed_if_b_was_checked_and_does_not_have_it():
    a = replace(run_of("a" * 16), findings=[replace(finding_of("casts"), ceiling_ms_per_step=2.0)])
    for below, fixed in (({"casts": 1.9}, []), ({"casts": 0.1}, ["casts"]), ({}, ["casts"])):
        found = compare(side(a), side(replace(run_of("b" * 16), below_threshold=below)))
        assert [f.rule for f in found.findings_fixed] == fixed, "1.9 ms are below the threshold, but not fixed"
    crowded = replace(finding_of("workers-beyond-cores"), evidence=({"quantity": "run_queue", "mean": 5.1},))
    xid = replace(finding_of("xid-error"), evidence=({"recording": "c" * 16, "devices": [0]},))
    b, host = run_of("b" * 16), HostLoad({"run_queue": 0.4}, {}, 60)
    a = replace(a, findings=[crowded, xid])
    found = compare(side(a), side(b))
    # B has no samples.
    assert (found.findings_fixed, found.not_comparable_findings) == ((), ("workers-beyond-cores", "xid-error"))
    b = replace(b, telemetry=replace(b.telemetry, host=host))
    assert [f.rule for f in compare(side(a), side(b)).findings_fixed] == ["workers-beyond-cores"]
    again = replace(run_of("c" * 16), findings=[crowded])
    assert not compare(side(a), side(b, again)).findings_fixed, "another run of B still has it"


def collected(gc_ms, findings, not_checked=(), plan=("garbage-collection",)):
    """Return a run whose step takes 20 ms plus ``gc_ms`` for Python's garbage collection."""
    ledger = (("other_compute", None, 20_000_000, 20.0), ("idle", "python_host", int(gc_ms * 1e6), gc_ms))
    run = run_of(f"{gc_ms:016.0f}", ledger=ledger[: 2 if gc_ms else 1], not_checked=not_checked)
    found = [
        replace(finding_of(rule), edits=(WithoutHostCause("python_host"),), explains=Explains(("python_host",)),
                predicted_step_ms=20.0, predicted_speedup=1 + gc_ms / 20)
        for rule in findings
    ]  # fmt: skip
    return replace(run, findings=found, plan=tuple(PlanStep(rule, 120.0, 20.0, 19.0, 21.0) for rule in plan))


def test_advice_that_b_cannot_check_is_fixed_if_its_lost_time_is_gone():
    """A has Python stacks that show gc.collect.

    B was recorded without stacks, and its step has no wait for Python at all.
    """
    both = ["garbage-collection", "python-between-operators"]
    a, b = collected(100.0, both), collected(0.0, [], ["garbage-collection"], plan=())
    found = compare(side(a), side(b))
    assert [f.rule for f in found.findings_fixed] == both
    assert found.not_comparable_findings == ()
    named = [difference.key for effect in found.effects for difference in effect.differences]
    assert named == ["garbage-collection"]  # The other finding is about the same time under another name.
    still = compare(side(a), side(collected(60.0, [], ["garbage-collection"], plan=())))
    assert still.not_comparable_findings == ("garbage-collection",)
