"""Tests of steps inside engines and CUDA graphs, and of loops with several optimizers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest.capture.command import hook
from sawtooth.ingest.capture.command.graphs import Graphs
from sawtooth.ingest.capture.command.hook import watch_updates
from sawtooth.ingest.capture.command.loop_times import MIN_STEPS_BEFORE_PROFILE
from tests.support.hooked_loop import HookedLoop, marks_of


def test_the_optimizer_with_fewest_steps_defines_the_steps(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    for _ in range(60):
        loop.run(1, 30, "critic")
        loop.run(1, 30, "critic")
        loop.run(1, 30, "actor")
    loop.hook.finish()
    start, stop = (steps for _, steps in loop.profiled)
    assert stop - start == 4 * 3  # The profile has three whole steps of the loop, and starts in the step before them.
    assert {mark["o"] for mark in marks_of(tmp_path)} == {0, 1}


def test_alternating_optimizers_are_profiled(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    for _ in range(60):
        loop.run(1, 30, "matrices")
        loop.run(1, 30, "the rest")
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    assert loop.profiled[1][1] - loop.profiled[0][1] == 2 * 4


def test_a_profile_ends_with_the_optimizer_that_began_it(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    loop.run(22, 50, "critic")
    for _ in range(5):
        loop.run(1, 50, "actor")  # Defines the steps from its second step on.
        loop.run(2, 50, "critic")
    assert loop.profiled[0] == ("start", MIN_STEPS_BEFORE_PROFILE)
    assert loop.profiled[1][0] == "stop" and loop.profiled[1][1] <= MIN_STEPS_BEFORE_PROFILE + 8


def test_updates_of_separate_groups_are_one_step(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)

    class Engine:
        """An engine like DeepSpeed's with ZeRO.

        One optimizer steps once for each group of parameters on the GPU, and another one for each group on the host.
        """

        def _take_model_step(self, groups: int) -> str:
            loop.run(groups, 1.0)
            loop.run(groups, 1.0, "on the host")
            return "taken"

        def fails(self) -> None:
            raise RuntimeError

    engines = SimpleNamespace(DeepSpeedEngine=Engine)
    watch_updates(engines)
    loop.run(2, 1.0)  # The engine creates the optimizer's state.
    assert [engines.DeepSpeedEngine()._take_model_step(groups=groups) for groups in (2, 1, 2)] == ["taken"] * 3
    with pytest.raises(TypeError):
        engines.DeepSpeedEngine()._take_model_step("no number")  # After the error, an update is one step again.
    engines.DeepSpeedEngine()._take_model_step(3)
    loop.run(2, 1.0)
    loop.hook.finish()
    marks = marks_of(tmp_path)
    assert [(mark["i"], mark["o"]) for mark in marks] == [(i, 0) for i in range(8)]


class CUDAGraph:
    """The interface of torch.cuda.graphs.CUDAGraph without a GPU."""

    def capture_begin(self, pool: Any = None) -> None:
        """Begin."""

    def capture_end(self) -> None:
        """End."""

    def replay(self) -> None:
        """Replay."""


@pytest.mark.parametrize("has_step", [True, False])
def test_each_replay_of_a_graph_with_a_step_is_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_step: bool) -> None:
    graphs, loop, graph = Graphs(), HookedLoop(tmp_path), type("CUDAGraph", (CUDAGraph,), {})
    graphs.watch(SimpleNamespace(CUDAGraph=graph))
    graphs.on_step = loop.hook.on_step
    monkeypatch.setattr(hook, "GRAPHS", graphs)
    loop.run(3, 10.0)
    step = graph()
    step.capture_begin(pool=None)
    if has_step:
        loop.run(1, 10.0)  # A captured step does not run.
    step.capture_end()
    for _ in range(5):
        loop.now_ns += 1_000_000
        step.replay()
    loop.hook.finish()
    assert len(marks_of(tmp_path)) == 3 + (5 if has_step else 0)


def test_a_failed_graph_capture_hides_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingGraph(CUDAGraph):
        def capture_begin(self, pool: Any = None) -> None:
            raise RuntimeError("a stream is capturing already")

    graphs, loop = Graphs(), HookedLoop(tmp_path)
    graphs.watch(SimpleNamespace(CUDAGraph=FailingGraph))
    monkeypatch.setattr(hook, "GRAPHS", graphs)
    with pytest.raises(RuntimeError, match="already"):
        FailingGraph().capture_begin()
    loop.run(3, 10.0)
    loop.hook.finish()
    assert len(marks_of(tmp_path)) == 3
