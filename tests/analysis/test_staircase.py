"""Tests of the plan chart: each choice's parts sum to its step, and the chain equals the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.result_cache import result_of, stairs_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.staircase import Staircase, staircase_of
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared


@pytest.fixture(scope="module")
def eager(shared_data: DataFolder) -> tuple[RunResult, Staircase]:
    """Return a launch-bound MLP in eager mode.

    A CUDA graph removes the launches, and compilation removes half of its element-wise work.
    """
    run = prepared(shared_data, RECORDINGS / "mlp_eager" / "trace.json.gz", RECORDINGS / "mlp_eager" / "nvml.jsonl")
    with Library(shared_data) as library:
        result = result_of(run, library)
        stairs = stairs_of(library, result)
    assert stairs is not None
    return result, stairs


@pytest.fixture(scope="module")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(tmp_path_factory.mktemp("staircase") / "data").create()


def test_the_chain_of_all_changes_is_the_plan(eager: tuple[RunResult, Staircase]) -> None:
    result, stairs = eager
    assert stairs.changes[: stairs.planned] == tuple(step.rule for step in result.plan) and stairs.planned > 1
    for count, step in enumerate(result.plan, 1):
        state = stairs.choices[(1 << count) - 1]
        assert state.ms == pytest.approx(step.predicted_step_ms)
        assert (state.low_ms, state.high_ms) == pytest.approx((step.predicted_low_ms, step.predicted_high_ms))
    assert stairs.now.ms == pytest.approx(result.plan[0].before_ms)


def test_every_choice_has_a_step_that_its_parts_sum_to(eager: tuple[RunResult, Staircase]) -> None:
    _, stairs = eager
    assert stairs.complete and set(stairs.choices) == set(range(1 << len(stairs.changes)))
    for state in stairs.choices.values():
        assert sum(ms for *_, ms in state.parts) == pytest.approx(state.ms)
        assert all(ms > 0 for *_, ms in state.parts)
        assert state.low_ms is not None and state.high_ms is not None and state.low_ms <= state.ms <= state.high_ms


def test_remaining_time_has_the_remaining_causes(eager: tuple[RunResult, Staircase]) -> None:
    _, stairs = eager

    def of(choice: int, cause: str) -> float:
        return sum(ms for owner, its, ms in stairs.choices[choice].parts if cause in (owner, its))

    graph = 1 << stairs.changes.index("launch-bound")
    fused = 1 << stairs.changes.index("elementwise-chains")
    assert of(graph, "launch_bound") < 0.05 * of(0, "launch_bound")  # One launch is left of hundreds.
    assert of(graph, "other_compute") == pytest.approx(of(0, "other_compute"), rel=0.01)  # A graph computes the same.
    assert of(graph | fused, "other_compute") < 0.6 * of(0, "other_compute")  # Fused kernels move less data.
    assert of(graph | fused, "tensor_core_compute") == pytest.approx(of(0, "tensor_core_compute"), rel=0.01)


def test_a_cached_staircase_equals_the_computed_one(eager: tuple[RunResult, Staircase], shared_data: DataFolder) -> None:
    result, stairs = eager
    with Library(shared_data) as library:
        assert stairs_of(library, result) == stairs == staircase_of(library, result)
        chain = staircase_of(library, result, every_choice=False)
    assert chain is not None and set(chain.choices) == {0, 1, 3} and not chain.complete


def test_a_run_without_changes_has_only_its_step(shared_data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = matmul_loop().write(tmp_path_factory.mktemp("loop") / "loop.json")
    assert BASE_NS
    with Library(shared_data) as library:
        result = replace(result_of(prepared(shared_data, trace), library), plan=(), findings=[])
        stairs = staircase_of(library, result)
    assert stairs is not None and stairs.changes == () and stairs.complete
    # 600 of each 1000 µs are a product on tensor cores and 100 µs an addition; the rest is idle.
    by_owner = {owner: ms for owner, cause, ms in stairs.now.parts if owner != "idle"}
    assert by_owner == pytest.approx({"tensor_core_compute": 0.6, "other_compute": 0.1}, rel=0.05)
