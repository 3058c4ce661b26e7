"""Tests of the waterfall of the run's step: parts by hand, and time in no profiled step."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.compare import waterfall
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.waterfall import RunRow, is_grown, profile_step_ns, profile_waterfall, run_waterfall
from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_REST, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.analysis.run.scaled_ledger import at_best, unseen_ms
from sawtooth.app.words.comparisons import step_parts
from tests.support.actions import act
from tests.support.run_results import run_of, side


def parts(a, b):
    return {(row.owner, row.cause): (float(row.ms_a), float(row.ms_b)) for row in run_waterfall([a], [b])}


def measured_by(source, best_ms, *, works_ms, lost_ms, lost_as_profiled_ms=None):
    """Return a run whose replayed step is ``works_ms`` of compute and ``lost_ms`` of synchronization."""
    recorded = lost_ms if lost_as_profiled_ms is None else lost_as_profiled_ms
    ledger = (
        ("other_compute", None, round(works_ms * 1e6), float(works_ms)),
        ("idle", "host_sync", round(recorded * 1e6), float(lost_ms)),
    )
    run = run_of(ledger=ledger, best_ms=best_ms, source=source)
    best = replace(run.lead.best, estimate=Reading(float(works_ms + lost_ms)))
    lead = replace(run.lead, best=best, ledger=at_best(run.lead.ledger, best))
    return replace(run, ranks=[lead], lead=lead)


def test_a_stopwatch_step_is_divided_like_the_replay():
    # The replay has 20 ms of work and 20 ms of lost time. The stopwatch shows 32 ms, so lost time shrinks to 12 ms, and no
    # time is outside the profiled steps. After: work 20, lost 2, stopwatch 26: lost as recorded 3 at most, so that 26 − 20 −
    # 3 = 3 ms are in no profiled step.
    a = measured_by("user", 32.0, works_ms=20, lost_ms=20)
    b = measured_by("user", 26.0, works_ms=20, lost_ms=2, lost_as_profiled_ms=3)
    assert parts(a, b) == {
        ("other_compute", None): (20.0, 20.0),
        ("idle", "host_sync"): (pytest.approx(12.0), pytest.approx(3.0)),
        (OUTSIDE_PROFILE, None): (0.0, pytest.approx(3.0)),
    }
    assert unseen_ms(b.lead.ledger, b.lead.best) == pytest.approx(3.0)


def test_without_a_replay_the_profile_is_scaled_and_the_rest_is_outside():
    # The profile has 20 ms of work and 20 ms of lost time. If the run's step is shorter, less time is lost. If it is longer,
    # the rest is outside the profiled steps.
    ledger = (("other_compute", None, 20_000_000, None), ("idle", "data_wait", 20_000_000, None))
    shorter, longer, least = (run_of(ledger=ledger, best_ms=ms, source="user") for ms in (30.0, 50.0, 15.0))
    assert parts(shorter, longer) == {
        ("other_compute", None): (20.0, 20.0),
        ("idle", "data_wait"): (10.0, 20.0),
        (OUTSIDE_PROFILE, None): (0.0, 10.0),
    }
    assert parts(least, least) == {("other_compute", None): (15.0, 15.0)}  # No time remains for losses.


def test_unknown_step_time_has_no_waterfall():
    lost = run_of()
    lost = replace(lost, metrics={**lost.metrics, "best_step_time_ms": Reading(None, "No steps.")})
    assert run_waterfall([run_of()], [lost]) == ()


steps_ms = st.floats(0.5, 500)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "telemetry", "estimate", "profile"]), steps_ms, steps_ms, steps_ms, steps_ms),
        min_size=2,
        max_size=2,
    )
)
def test_the_parts_sum_to_the_step_exactly_and_none_is_negative(drawn):
    a, b = (
        measured_by(source, best, works_ms=works, lost_ms=lost, lost_as_profiled_ms=recorded)
        for source, best, works, lost, recorded in drawn
    )
    rows = run_waterfall([a], [b])
    for run, which in ((a, "ms_a"), (b, "ms_b")):
        assert sum(getattr(row, which) for row in rows) == Fraction(run.metrics["best_step_time_ms"].value)
        assert all(getattr(row, which) >= 0 for row in rows)
    assert all(row.change_ms == 0 for row in run_waterfall([a], [a]))


def test_the_named_part_changes_in_the_direction_of_the_step():
    # Work grows by 4 ms, synchronization shrinks by 3 ms, and copies grow by 1 ms. The step is 2 ms longer, and the sentence
    # names work. So it does if the sides are exchanged.
    a = run_of(ledger=(("other_compute", None, 10_000_000, None), ("idle", "host_sync", 5_000_000, None)))
    b = run_of(
        "b" * 16,
        ledger=(
            ("other_compute", None, 11_000_000, None),
            ("exposed_memcpy", "blocking_copy", 1_000_000, None),
            ("idle", "host_sync", 1_000_000, None),
        ),
    )
    there, back = compare(side(a), side(b)), compare(side(b), side(a))
    assert "idle" not in step_parts.title(step_parts.bars(back, "run"), "run").split("largest part is")[1]
    assert step_parts.title(step_parts.bars(there, "run"), "run").startswith("The step changed by −2.00")
    assert step_parts.title(step_parts.bars(compare(side(a), side(a)), "run"), "run") == "The step did not change"


def profiled(counted, *ledger):
    return run_of(ledger=ledger, counted=counted)


def test_the_profiled_step_is_the_window_divided_by_its_steps():
    # 30 ns over 2 steps are 15, 50 over 5 are 10; their mean is 12.5.
    two, five = profiled(2, ("other_compute", None, 30, None)), profiled(5, ("other_compute", None, 50, None))
    assert profile_step_ns([two, five]) == Fraction(25, 2)
    without = replace(two, lead=replace(two.lead, steps=two.lead.steps.assign(counted=False)))
    assert profile_step_ns([two, without]) is None and profile_step_ns([replace(two, lead=None)]) is None
    assert profile_waterfall([two], [without]) == () == profile_waterfall([without], [two])


def test_the_profiles_parts_are_means_of_a_side_s_runs_and_sum_to_its_step():
    a = [
        profiled(2, ("other_compute", None, 30, 0.010), ("idle", "host_sync", 10, 0.004)),
        profiled(4, ("other_compute", None, 40, 0.006)),
    ]
    b = [profiled(1, ("other_compute", None, 9, 0.005), ("exposed_memcpy", "blocking_copy", 6, 0.001))]
    rows = {(row.owner, row.cause): row for row in profile_waterfall(a, b)}
    work, copy, sync = rows["other_compute", None], rows["exposed_memcpy", "blocking_copy"], rows["idle", "host_sync"]
    # 30 over 2 and 40 over 4: (15 + 10) ÷ 2; 10 over 2 in one of two runs: 5 ÷ 2.
    assert (work.ns_a, work.ns_b, work.change_ns) == (Fraction(25, 2), 9, Fraction(-7, 2))
    assert (copy.ns_a, copy.ns_b) == (0, 6) and (sync.ns_a, sync.ns_b) == (Fraction(5, 2), 0)
    assert sum(row.ns_a for row in rows.values()) == profile_step_ns(a) == 15
    # Without the profiler: (0.010 + 0.006) ÷ 2 and 0.004 ÷ 2.
    assert work.unprofiled_ms_a == pytest.approx(0.008) and work.unprofiled_change_ms == pytest.approx(-0.003)
    assert sync.unprofiled_ms_a == pytest.approx(0.002) and (sync.unprofiled_ms_b, copy.unprofiled_ms_a) == (0.0, 0.0)


def test_a_side_without_a_replay_has_no_unprofiled_time():
    replayed, not_replayed = (profiled(1, ("other_compute", None, 9, ms)) for ms in (0.005, None))
    (row,) = profile_waterfall([replayed], [replayed, not_replayed])
    assert row.unprofiled_ms_a == 0.005 and row.unprofiled_ms_b is None and row.unprofiled_change_ms is None
    (back,) = profile_waterfall([not_replayed], [replayed])
    assert back.unprofiled_ms_a is None and back.unprofiled_change_ms is None
    # a part missing in all replays has no time
    in_part = profiled(1, ("other_compute", None, 9, 0.005), ("idle", "host_sync", 1, None))
    assert [row.unprofiled_ms_a for row in profile_waterfall([in_part], [in_part])] == [0.005, 0.0]
    other = profiled(1, ("other_compute", None, 9, 0.005), ("idle", "host_sync", 1, 0.0))
    assert [row.unprofiled_ms_a for row in profile_waterfall([not_replayed], [other])] == [None, None]


def test_parts_have_the_order_of_the_ledger_and_longer_ones_come_first():
    a = profiled(1, ("idle", "allocator", 2, None), ("idle", "host_sync", 5, None), ("other_compute", None, 1, None))
    b = profiled(
        1, ("idle", "data_wait", 9, None), ("idle", "blocking_copy", 4, None), ("idle", "allocator", 4, None), ("other_compute", None, 1, None)
    )  # fmt: skip
    order = ["data_wait", "host_sync", "allocator", "blocking_copy"]  # 9, 5, and 4 twice: by name
    for rows in (profile_waterfall([a], [b]), profile_waterfall([b], [a])):
        assert [row.owner for row in rows] == ["other_compute", "idle", "idle", "idle", "idle"]
        assert [row.cause for row in rows[1:]] == order
    # The steps are longer than the sums of their ledgers. The difference is outside the profile and comes last.
    ms = (0.02, 0.03)
    longer = [replace(run, metrics={**run.metrics, "best_step_time_ms": Reading(t)}) for run, t in zip((a, b), ms, strict=True)]
    assert [row.cause for row in run_waterfall(longer[:1], longer[1:])] == [None, *order, None]
    assert run_waterfall(longer[:1], longer[1:])[-1].owner == OUTSIDE_PROFILE


def test_the_largest_part_takes_the_rounding_error():
    ledger = (("other_compute", None, 1_000_000, None), ("idle", "host_sync", 3_000_000, None))
    for off_ms, owners in ((2e-6, {"other_compute", "idle"}), (2e-5, {"other_compute", "idle", OUTSIDE_PROFILE})):
        run = run_of(ledger=ledger, best_ms=4.0 + off_ms, source="user")  # A millionth of 4 ms are 4e-6.
        rows = run_waterfall([run], [run])
        assert {row.owner for row in rows} == owners
        assert sum(row.ms_a for row in rows) == Fraction(4.0 + off_ms)
        assert next(row.ms_a for row in rows if row.owner == "other_compute") == 1


def test_parts_of_several_runs_are_averaged():
    one, other = (run_of(ledger=(("other_compute", None, ns, None),), source="profile") for ns in (10_000_000, 20_000_000))
    (row,) = run_waterfall([one, other], [one])
    assert (float(row.ms_a), float(row.ms_b), float(row.change_ms)) == (15.0, 10.0, -5.0)


def test_losses_of_the_replay_replace_those_of_the_profile():
    # Work 20. As profiled 10 of synchronization and 10 of waiting; in the replay 2 and 8, which is the run's step of 30.
    ledger = (
        ("other_compute", None, 20_000_000, 20.0),
        ("idle", "host_sync", 10_000_000, 2.0),
        ("idle", "data_wait", 10_000_000, 8.0),
    )
    run = run_of(ledger=ledger, best_ms=30.0, source="estimate")
    run = replace(run, lead=replace(run.lead, best=replace(run.lead.best, estimate=Reading(30.0))))
    assert parts(run, run) == {
        ("other_compute", None): (20.0, 20.0),
        ("idle", "host_sync"): (2.0, 2.0),
        ("idle", "data_wait"): (8.0, 8.0),
    }


def test_host_operators_are_merged_against_step_marks(monkeypatch):
    # Marks show a loop's loading and none of its operators; two recordings of the host show both.
    host = replace(run_of(best_ms=10.0), lead=None, host=object())
    marks = replace(run_of(best_ms=8.0), lead=None, host=None)
    known = {id(host): {HOST_LOADING: 2.0, HOST_OPERATORS: 5.0, HOST_REST: 3.0}, id(marks): {HOST_LOADING: 1.0, HOST_REST: 7.0}}
    monkeypatch.setattr(waterfall, "host_parts", lambda run: known[id(run)])
    assert parts(host, marks) == {(HOST_LOADING, None): (2.0, 1.0), (HOST_REST, None): (8.0, 7.0)}
    assert parts(marks, host) == {(HOST_LOADING, None): (1.0, 2.0), (HOST_REST, None): (7.0, 8.0)}
    assert parts(host, host)[HOST_OPERATORS, None] == (5.0, 5.0)


def test_part_in_both_runs_is_not_new() -> None:
    # The loader's 600 ms are gone. The 33 ms of small kernels existed before, and the host's wait of 5 ms is new.
    rows = [
        RunRow("idle", "data_wait", Fraction(600), Fraction(0)),
        RunRow("other_compute", None, Fraction(33), Fraction(33)),
        RunRow("idle", "host_sync", Fraction(0), Fraction(5)),
    ]
    chains = Finding("chains", "warning", "678 kernels", act("Compile."), "medium", ceiling_ms_per_step=20.0)
    waits = Finding(
        "waits", "warning", "Waits", act("Wait less."), "high", ceiling_ms_per_step=5.0, explains=Explains(("host_sync",))
    )
    assert not is_grown(chains, rows) and is_grown(waits, rows)
    assert is_grown(chains, [RunRow("other_compute", None, Fraction(13), Fraction(33))])
    assert is_grown(chains, []) and is_grown(replace(chains, ceiling_ms_per_step=None), rows), "nothing tells"
