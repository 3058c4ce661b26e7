"""Tests of comparisons: exact waterfall sums, swapped sides, and a run against itself.

Swapping the sides negates all differences; a run compared with itself has none.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.matching import PerStepWork, match
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Explains, PlanStep
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.host import HostLoad
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import RECORDINGS, SHARED
from tests.support.run_results import finding_of, run_of, side

causes = st.sampled_from([None, "data_wait", "host_sync", "launch_bound", "unattributed"])
rows = st.dictionaries(st.tuples(st.sampled_from(OWNER_KEYS), causes), st.integers(1, 10**12), min_size=1, max_size=12).map(
    lambda found: tuple((owner, cause, ns, None) for (owner, cause), ns in found.items())
)
sides = st.lists(st.tuples(rows, st.integers(1, 97)), min_size=1, max_size=3)


def runs_of(drawn):
    return [run_of(f"{i:016x}", ledger=ledger, counted=n) for i, (ledger, n) in enumerate(drawn)]


@settings(max_examples=80, deadline=None)
@given(sides, sides)
def test_the_waterfall_sums_to_the_change_of_the_mean_step_exactly(a, b):
    a, b = runs_of(a), runs_of(b)
    there = compare(side(*a), side(*b))
    back = compare(side(*b), side(*a))
    mean_a, mean_b = (sum(Fraction(r.lead.window_ns, len(r.lead.counted)) for r in runs) / len(runs) for runs in (a, b))
    assert sum((row.change_ns for row in there.waterfall), Fraction(0)) == mean_b - mean_a
    assert there.profile_ns == (mean_a, mean_b)
    assert {(r.owner, r.cause): r.change_ns for r in there.waterfall} == {
        (r.owner, r.cause): -r.change_ns for r in back.waterfall
    }
    assert back.profile.change_ms == -there.profile.change_ms
    assert back.best.change_ms == -there.best.change_ms
    assert sum(row.ms_a for row in there.waterfall_run) == pytest.approx(there.best.a, rel=1e-9)
    assert sum(row.change_ms for row in there.waterfall_run) == -sum(row.change_ms for row in back.waterfall_run)
    assert sum(row.change_ms for row in there.waterfall_run) == pytest.approx(
        there.best.change_ms, abs=1e-9 * (there.best.a + there.best.b)
    )


@settings(max_examples=30, deadline=None)
@given(sides)
def test_a_run_against_itself_is_zero_everywhere(a):
    a = runs_of(a)
    found = compare(side(*a), side(*a))
    assert all(row.change_ns == 0 for row in found.waterfall)
    assert all(row.change_ms == 0 for row in found.waterfall_run)
    assert found.best.change_ms == found.profile.change_ms == found.median.change_ms == 0
    assert all(change.change in (None, 0) for change in found.metrics)
    assert found.verdict.word == "no_difference_shown"
    assert (found.reasons, found.findings_fixed, found.findings_new, found.disagreement) == ((), (), (), None)


names = st.sampled_from(["k1", "k2", "k3", "k4"])
pieces = st.lists(
    st.builds(
        PerStepWork,
        names,
        st.sampled_from(["", "aten::mm", "aten::add", "triton"]),
        st.sampled_from(["", "[[1]]", "[[2]]"]),
        st.sampled_from(["", "gemm", "elementwise"]),
        st.integers(0, 10**9).map(lambda ns: Fraction(ns, 7)),
        st.integers(1, 100).map(lambda n: Fraction(n, 7)),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(pieces, pieces)
def test_every_piece_of_either_side_is_in_exactly_one_row(a, b):
    there, back = match(a, b), match(b, a)
    assert sum(r.ns_a for r in there) == sum(p.ns for p in a)
    assert sum(r.ns_b for r in there) == sum(p.ns for p in b)
    assert sum(r.count_a for r in there) == sum(p.count for p in a)
    mirrored = {"only_a": "only_b", "only_b": "only_a"}
    assert sorted((r.how, r.label, r.ns_a, r.ns_b) for r in there) == sorted(
        (mirrored.get(r.how, r.how), r.label, r.ns_b, r.ns_a) for r in back
    )
    assert all(r.change_ns == 0 and r.how == "name" for r in match(a, a))


def piece(name, operator, shapes, ns, category="gemm"):
    return PerStepWork(name, operator, shapes, category, Fraction(ns), Fraction(1))


def test_kernels_are_matched_through_renames_fusions_and_changed_shapes():
    a = [
        piece("same", "aten::mm", "[[1]]", 10),
        piece("sgemm", "aten::mm", "[[8,8]]", 100),  # renamed: the same operator and shapes run another kernel
        piece("attention_fwd", "aten::bmm", "[[4]]", 50),  # the batch doubled
        piece("mul", "aten::mul", "[[2]]", 7, "elementwise"),  # fused with add
        piece("add", "aten::add", "[[2]]", 8, "elementwise"),
        piece("gone", "aten::item", "[]", 3, "memcpy"),
    ]
    b = [
        piece("same", "aten::linear", "[[9]]", 11),
        piece("bf16gemm", "aten::mm", "[[8,8]]", 20),
        piece("attention_big", "aten::bmm", "[[8]]", 90),
        piece("triton_mul_add", "triton_fused", "", 9, "elementwise"),
        piece("new", "aten::cat", "[]", 2, "copy"),
    ]
    found = {(r.how, r.names_a, r.names_b): (int(r.ns_a), int(r.ns_b)) for r in match(a, b)}
    assert found == {
        ("name", ("same",), ("same",)): (10, 11),
        ("operator_and_shape", ("sgemm",), ("bf16gemm",)): (100, 20),
        ("operator", ("attention_fwd",), ("attention_big",)): (50, 90),
        ("category", ("add", "mul"), ("triton_mul_add",)): (15, 9),
        ("only_a", ("gone",), ()): (3, 0),
        ("only_b", (), ("new",)): (0, 2),
    }


def test_best_step_times_lead_and_disagreement_with_the_profiles_is_reported():
    # The profiles: 40 → 46 ms; the stopwatch: 32.5 → 26.3 ms.
    a = run_of("a" * 16, ledger=(("idle", "host_sync", 40_000_000, 20.0),), best_ms=32.5, source="user")
    b = run_of("b" * 16, ledger=(("idle", "launch_bound", 46_000_000, 2.0),), best_ms=26.3, source="user")
    found = compare(side(a, steps=[39.0, 40.0, 41.0, 40.0]), side(b, steps=[45.0, 46.0, 47.0, 46.0]))
    assert found.best.change_ms == pytest.approx(-6.2)
    assert found.profile.change_ms == pytest.approx(6.0)
    assert found.verdict.word == "faster"
    for words in ("15 % slower", "19 % faster", "40 ms → 46 ms", "32.5 ms → 26.3 ms", "stopwatch"):
        assert words in found.disagreement
    assert [(r.cause, r.unprofiled_change_ms) for r in found.waterfall] == [("launch_bound", 2.0), ("host_sync", -20.0)]


@pytest.mark.parametrize(("b_ms", "said"), [(43.0, False), (46.0, True), (50.0, True)])
def test_a_profile_that_differs_by_more_than_ten_points_is_reported(b_ms, said):
    # The profiles 40 → 40, the runs 40 → 43, 46 and 50 ms: 7.5, 15 and 25 % apart.
    ledger = (("idle", "host_sync", 40_000_000, None),)
    a, b = (
        run_of("a" * 16, ledger=ledger, best_ms=40.0, source="user"),
        run_of("b" * 16, ledger=ledger, best_ms=b_ms, source="user"),
    )
    assert (compare(side(a), side(b)).disagreement is not None) is said


def test_values_known_for_all_runs_of_a_side_are_averaged():
    one, two = (run_of(c * 16, best_ms=ms, source="user") for c, ms in (("a", 10.0), ("b", 30.0)))
    lost = replace(two, metrics={**two.metrics, "best_step_time_ms": Reading(None, "No steps.")})
    found = compare(side(one, two), side(one))
    assert (found.best.a, found.best.b) == (20.0, 10.0)
    assert compare(side(one, lost), side(one)).best.a is None


def test_steps_of_the_replay_show_the_spread_if_recording_slowed_the_host(tmp_path):
    # In this host-bound recording the profiled steps take twice the estimate, and their noise is the profiler's.
    library = Library(DataFolder(tmp_path / "data"))
    folder = RECORDINGS / "mlp_eager"
    result = analyse(bring_in(library.folder, [(folder / "trace.json.gz", "t.json.gz")]).runs[0], library)
    (measured,) = side_of([result], library).measured
    library.close()
    assert sum(measured.steps_ms) / len(measured.steps_ms) == pytest.approx(result.metrics["step_time_unprofiled_est_ms"].value)
    assert measured.steps_ms != tuple(result.lead.device_step_ms)


def test_profiles_that_agree_with_the_runs_are_not_mentioned():
    a = run_of("a" * 16, ledger=(("idle", "host_sync", 40_000_000, None),), best_ms=38.0)
    b = run_of("b" * 16, ledger=(("idle", "host_sync", 30_000_000, None),), best_ms=28.5)
    assert compare(side(a), side(b)).disagreement is None


def test_other_differences_than_the_change_are_named():
    a = run_of("a" * 16, metrics={"flops_per_step": 1e12, "mfu_factor_clock": 1.0}, record_shapes=True, world_size=1)
    b = run_of(
        "b" * 16, metrics={"flops_per_step": 2e12, "mfu_factor_clock": 0.9}, with_stack=True, world_size=8, device="NVIDIA H100"
    )
    found = compare(side(a), side(b))
    assert {r.key for r in found.reasons} == {"gpu", "world_size", "record_shapes", "with_stack", "clock", "work"}
    assert all(r.sentence.endswith(".") for r in found.reasons)


def test_an_assumed_clock_is_not_a_reason():
    a, b = (run_of(i * 16, metrics={"mfu_factor_clock": clock}) for i, clock in (("a", 1.08), ("b", 1.0)))
    metrics = {
        **b.metrics,
        "mfu_factor_clock": Reading(1.0, trust="caution", notes=("The clock is not known from telemetry.",)),
    }
    assert "clock" in {r.key for r in compare(side(a), side(b)).reasons}
    assert "clock" not in {r.key for r in compare(side(a), side(replace(b, metrics=metrics))).reasons}


def test_operators_on_other_shapes_are_a_reason():
    def operators(batch):
        return [PerStepWork(f"aten::mm [[{batch},8]]", "aten::mm", f"[[{batch},8]]", "", Fraction(9), Fraction(1))]

    found = compare(side(run_of(), operators=operators(1)), side(run_of("b" * 16), operators=operators(2)))
    assert [r.key for r in found.reasons] == ["shapes"]


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
        assert [f.rule for f in found.findings_fixed] == fixed, "1.9 ms are too few for a finding, and still there"
    crowded = replace(finding_of("workers-beyond-cores"), evidence=({"quantity": "run_queue", "mean": 5.1},))
    xid = replace(finding_of("xid-error"), evidence=({"recording": "c" * 16, "devices": [0]},))
    b, host = run_of("b" * 16), HostLoad({"run_queue": 0.4}, {}, 60)
    a = replace(a, findings=[crowded, xid])
    found = compare(side(a), side(b))
    assert (found.findings_fixed, found.not_comparable_findings) == ((), ("workers-beyond-cores", "xid-error")), (
        "B has no samples"
    )
    b = replace(b, telemetry=replace(b.telemetry, host=host))
    assert [f.rule for f in compare(side(a), side(b)).findings_fixed] == ["workers-beyond-cores"]
    again = replace(run_of("c" * 16), findings=[crowded])
    assert not compare(side(a), side(b, again)).findings_fixed, "another run of B has it still"


def collected(gc_ms, findings, not_checked=(), plan=("garbage-collection",)):
    """Return a run whose step of 20 ms and ``gc_ms`` loses the latter to Python's garbage collection."""
    rows = (("other_compute", None, 20_000_000, 20.0), ("idle", "python_host", int(gc_ms * 1e6), gc_ms))
    run = run_of(f"{gc_ms:016.0f}", ledger=rows[: 2 if gc_ms else 1], not_checked=not_checked)
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
    assert named == ["garbage-collection"]  # the other is the same time, under another name
    still = compare(side(a), side(collected(60.0, [], ["garbage-collection"], plan=())))
    assert still.not_comparable_findings == ("garbage-collection",)


CONTRACT = {
    "report_version", "a", "b", "best_step_time_ms", "profile_step_time_ms", "waterfall", "kernels", "operators",
    "findings_fixed", "findings_new",
}  # fmt: skip


def test_two_traces_from_file_to_contract(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    try:
        runs = []
        for name, trace in (("a", matmul_loop(steps=5)), ("b", matmul_loop(steps=5, step_us=800, matmul_us=400))):
            path = trace.write(tmp_path / f"{name}.json")
            runs.append(analyse(bring_in(library.folder, [(path, path.name)]).runs[0], library))
        found = json.loads(json.dumps(compare_json(compare(side_of(runs[:1], library), side_of(runs[1:], library)))))
    finally:
        library.close()
    assert set(found) >= CONTRACT
    # 1000 → 800 µs a step, of which the matrix product 600 → 400 µs and nothing else.
    assert found["profile_step_time_ms"]["change_ms"] == pytest.approx(-0.2)
    assert found["profile_step_time_ms"]["median"]["change_ms"] == pytest.approx(-0.2)
    assert found["best_step_time_ms"]["verdict"] == "faster"
    assert found["verdict"] == "faster_size_unknown"
    low, high = found["best_step_time_ms"]["ci95_ms"]
    assert low < found["best_step_time_ms"]["change_ms"] < high
    changed = {(r["owner"], r["cause"]): r["change_ms"] for r in found["waterfall"] if abs(r["change_ms"]) > 1e-9}
    assert changed == {("tensor_core_compute", None): pytest.approx(-0.2)}
    assert [(k["matched_by"], round(k["change_ms"], 6)) for k in found["kernels"]] == [("name", -0.2), ("name", 0.0)]
    assert {o["label"] for o in found["operators"]} == {
        "aten::mm [[1024,1024],[1024,1024]]",
        "aten::add [[1024,1024],[1024,1024],[]]",
    }


def recordings():
    return [
        (a, b) for a, b in (("gpt_sync", "gpt_nosync"), ("gpt_fp32", "gpt_fp32_bf16")) if (SHARED / "recordings" / a).is_dir()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), recordings())
def test_recorded_fixes_are_faster_by_the_stopwatch(before, after, tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    try:
        found = []
        for name in (before, after):
            files = [(p, p.name) for p in sorted((SHARED / "recordings" / name).glob("*[!h].json*"))]
            found.append(side_of([analyse(bring_in(library.folder, files, name=name).runs[0], library)], library))
        comparison = compare(*found)
    finally:
        library.close()
    assert comparison.verdict.word == "faster"
    assert (
        sum((row.change_ns for row in comparison.waterfall), Fraction(0)) == comparison.profile_ns[1] - comparison.profile_ns[0]
    )
    if before == "gpt_sync":
        assert comparison.profile.change_ms > 0
        assert comparison.disagreement


def test_runs_without_gpu_work_or_steps_are_answered_with_the_reason(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    trace = matmul_loop()
    trace.events = [e for e in trace.events if not str(e["name"]).startswith("ProfilerStep")]
    no_steps = trace.write(tmp_path / "no_steps.json")
    host_only = matmul_loop()
    host_only.events = [e for e in host_only.events if e["cat"] == "cpu_op"]
    no_gpu = host_only.write(tmp_path / "no_gpu.json")
    try:
        sides = [
            side_of([analyse(bring_in(library.folder, [(path, path.name)]).runs[0], library)], library)
            for path in (no_steps, no_gpu, matmul_loop().write(tmp_path / "fine.json"))
        ]
        for a in sides:
            for b in sides:
                found = compare(a, b)
                json.dumps(compare_json(found), allow_nan=False)
                if a is b:
                    assert found.verdict.word == "no_difference_shown"
                else:
                    assert (found.verdict.word, found.waterfall) == ("inconclusive", ())
                    assert "No step time is known" in found.verdict.why
    finally:
        library.close()
