"""A loop that replays a CUDA graph of its step: the optimizer is called once, while the graph is captured, and each replay is a step."""

from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest.capture.command import hook
from sawtooth.ingest.capture.command.graphs import Graphs
from tests.ingest.capture.command.test_hook import Loop, marks_of


class CUDAGraph:
    """As torch.cuda.graphs has it, without a GPU."""

    def capture_begin(self, pool: Any = None) -> None:
        """Begin."""

    def capture_end(self) -> None:
        """End."""

    def replay(self) -> None:
        """Replay."""


@pytest.mark.parametrize("holds_step", [True, False])
def test_each_replay_of_a_graph_that_holds_a_step_is_one(tmp_path, monkeypatch, holds_step):
    graphs, loop, graph = Graphs(), Loop(tmp_path), type("CUDAGraph", (CUDAGraph,), {})
    graphs.watch(SimpleNamespace(CUDAGraph=graph))
    graphs.on_step = loop.hook.on_step
    monkeypatch.setattr(hook, "GRAPHS", graphs)
    loop.run(3, 10.0)
    step = graph()
    step.capture_begin(pool=None)
    if holds_step:
        loop.run(1, 10.0)  # captured, which is no step
    step.capture_end()
    for _ in range(5):
        loop.now_ns += 1_000_000
        step.replay()
    loop.hook.finish()
    assert len(marks_of(tmp_path)) == 3 + (5 if holds_step else 0)
