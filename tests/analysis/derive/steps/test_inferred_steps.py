"""Tests of inferred steps, on small loops and on recordings without their marks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.derive.events import Calls, CpuOps, GpuOps, TraceEvents
from sawtooth.analysis.derive.steps.host import find_host_steps
from sawtooth.analysis.derive.steps.inferred_steps import find_periods
from sawtooth.analysis.derive.steps.layers import are_layers
from sawtooth.ingest.loop.step_boundary import TIMED_NAME
from tests.support.paths import RECORDINGS
from tests.support.unmarked import marked_and_not

LAYER = ["aten::linear", "aten::relu", "aten::add"]
FORWARD = ["aten::embedding", *LAYER * 6, "aten::nll_loss"]
BACKWARD = [f"autograd::engine::evaluate_function: {name}" for name in ("NllLoss", *["Add", "Relu", "Linear"] * 6, "Embedding")]
OPTIMIZER = ["aten::addcdiv_", "aten::lerp_"] * 8
STEP = [*FORWARD, *BACKWARD, *OPTIMIZER]


def host_does(names: list[str]) -> TraceEvents:
    """Return the events of a host that begins one operator every 10 ns and launches only kernels."""
    texts = ["cudaLaunchKernel", "kernel", *dict.fromkeys(names)]
    n = len(names)
    begin = np.arange(n, dtype=np.int64) * 10
    item, none = np.arange(n, dtype=np.int64), np.full(n, -1, np.int64)
    zero, one = np.zeros(n, np.int32), np.ones(n, np.int32)
    return TraceEvents(
        0,
        texts,
        GpuOps(np.zeros(n, np.int8), one, zero, one.astype(np.int64), begin + 5, begin + 9, item, item, none, none),
        Calls(zero, zero, begin + 2, begin + 4, item, item, one),
        CpuOps(
            np.zeros(n, bool),
            np.array([texts.index(name) for name in names], np.int32),
            zero,
            begin,
            begin + 8,
            none,
            none,
            none,
            np.full(n, -1, np.int32),
        ),
    )


@pytest.mark.parametrize(
    ("passes", "periods", "layers"),
    [
        (1, range(0, 12, 2), True),  # Six layers of two operators each run forward, then their backward work follows.
        (1, range(12, 24, 2), True),  # The same layers, found in the backward pass.
        (3, range(0, 48, 2), True),  # Three iterations in which every layer looks like a step.
        (3, range(0, 72, 24), False),
        (4, range(12, 96, 24), False),  # Each period begins between forward and backward.
    ],
)
def test_layers_are_known_by_their_backward_work(passes: int, periods: range, layers: bool) -> None:
    events = host_does(["aten::linear"] * 24 * passes)
    one_pass = np.concatenate([np.arange(12), np.arange(12)[::-1]])
    sequence = np.concatenate([one_pass + 12 * number for number in range(passes)]).astype(np.int64)
    thread = np.tile(np.repeat([0, 1], 12), passes).astype(np.int64)
    events = replace(events, ops=replace(events.ops, sequence=sequence, forward_thread=thread))
    assert are_layers(events, np.array(periods, np.int64) * 10) == layers


def begins_at(names: list[str]) -> list[int] | None:
    periods = find_periods(host_does(names))
    return None if periods is None else (periods[0] // 10).tolist()


def test_a_step_is_found_though_its_layers_and_its_updates_repeat_too() -> None:
    assert begins_at(STEP * 4) == [k * len(STEP) for k in range(4)]


def test_each_period_ends_where_the_next_begins() -> None:
    starts, ends = find_periods(host_does(STEP * 3)) or ([], [])
    assert ends[:-1].tolist() == starts[1:].tolist()


def test_micro_batches_that_share_an_update_are_one_step() -> None:
    step = [*FORWARD, *BACKWARD] * 4 + OPTIMIZER
    assert begins_at(step * 3) == [k * len(step) for k in range(3)]


@pytest.mark.parametrize("step", [STEP, [*FORWARD, *BACKWARD] * 4 + OPTIMIZER], ids=["one batch", "micro-batches"])
def test_one_step_is_not_cut_into_its_layers_or_micro_batches(step: list[str]) -> None:
    assert begins_at(step) is None
    assert find_host_steps(host_does(step)).source == "none"


def test_a_checkpoint_every_second_step_does_not_make_two_steps_one() -> None:
    save = ["aten::detach", "aten::to", "aten::copy_"] * 60
    at = begins_at([*STEP, *STEP, *save, *STEP, *STEP, *save])
    assert at == [0, len(STEP), 2 * len(STEP) + len(save), 3 * len(STEP) + len(save)]


def test_lengths_that_vary_do_not_hide_the_loop() -> None:
    loop: list[str] = []
    wanted = []
    for layers in (5, 9, 6, 8, 7):
        wanted.append(len(loop))
        loop += ["aten::embedding", *LAYER * layers, "aten::nll_loss", *BACKWARD, *OPTIMIZER]
    assert begins_at(loop) == wanted


def test_a_capture_that_starts_within_a_step_gives_complete_steps() -> None:
    at = begins_at((STEP * 5)[30:-20])
    assert at is not None
    assert set(np.diff(at)) == {len(STEP)}


def test_a_generation_loop_has_a_step_per_token_not_per_layer() -> None:
    token = ["aten::embedding", "aten::cos", *LAYER * 24, "aten::argmax", "aten::cat"]
    assert begins_at(token * 20) == [k * len(token) for k in range(20)]


@pytest.mark.parametrize("model_input", ["aten::embedding", "aten::conv2d"])
def test_layers_of_one_forward_pass_are_not_steps(model_input: str) -> None:
    layer = [f"aten::op{i}" for i in range(20)]  # With so many kinds of layers, input and head are a small share.
    one_pass = [model_input, "aten::add", *layer * 8, "aten::linear"]
    assert begins_at(one_pass) is None
    assert begins_at(one_pass * 3) == [k * len(one_pass) for k in range(3)]
    text_encoder = ["aten::embedding", *[f"aten::op{i % 10}" for i in range(120)]]
    assert begins_at([*text_encoder, *layer * 8]) is not None  # Iterations of a diffusion.


def test_no_inferred_steps_without_repetition() -> None:
    assert begins_at([f"aten::op_{i}" for i in range(50)]) is None
    assert begins_at([]) is None


def test_no_steps_are_inferred_if_the_recorder_saw_no_loop() -> None:
    """Random functions on a GPU must not give steps. By chance, they looked like four steps of 256 ms."""
    events = host_does([TIMED_NAME, *STEP * 4])
    assert find_host_steps(events).source == "inferred"
    of_recorder = np.arange(len(events.ops.start)) == 0
    assert find_host_steps(replace(events, ops=replace(events.ops, annotation=of_recorder))).source == "none"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["gpt_small", "adam_single", "checkpointing_io", "mlp_graph", "recompiles"])
def test_a_recording_without_its_marks_keeps_its_step_time(name: str) -> None:
    marked, bare = marked_and_not(RECORDINGS / name / "trace.json.gz")
    assert (marked.source, bare.source) == ("profiler_step", "inferred")
    assert bare.ms == pytest.approx(marked.ms, rel=0.01)
