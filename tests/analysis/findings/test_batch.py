"""Another batch size: kernels and memory by hand, and on two recordings of one model with batches of 2 and 32, timed by a stopwatch."""

from __future__ import annotations

import json
import math
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.findings.batch.growth import Scale
from sawtooth.analysis.findings.batch.memory import memory_at, parameters_of
from sawtooth.analysis.findings.batch.step import _edit, _Kernels, at_batches, sentence
from sawtooth.analysis.findings.rule import RuleContext
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.findings_of import library, result_of
from tests.support.paths import RECORDINGS

H200 = identify("NVIDIA H200", None, None, None, None)
OWN = frozenset({(3072, 768), (768, 3072), (3072,)})
MB = 1_000_000


def kernel(**given):
    usual = {
        "category": "elementwise",
        "kind": "kernel",
        "flop_operator": None,
        "flop_dims": None,
        "flop_types": None,
        "flop_strides": None,
    }
    usual |= {"flop_concrete": None, "operator": None, "dims": None, "types": None, "concrete": None, "tensor_cores": None}
    return SimpleNamespace(**(usual | given))


@pytest.mark.parametrize(
    ("operator", "dims", "larger"),
    [
        ("aten::addmm", [[3072], [4096, 768], [768, 3072], [], []], [[3072], [16384, 768], [768, 3072], [], []]),
        ("aten::mm", [[4096, 3072], [3072, 768]], [[16384, 3072], [3072, 768]]),  # the gradient of the activations
        ("aten::mm", [[3072, 4096], [4096, 768]], [[3072, 16384], [16384, 768]]),  # the gradient of the weights
        ("aten::bmm", [[96, 128, 64], [96, 64, 128]], [[384, 128, 64], [384, 64, 128]]),
    ],
)
def test_the_side_of_a_product_that_grows_is_the_one_that_is_no_parameter(operator, dims, larger):
    assert Scale(H200, OWN, 4.0)._larger(operator, dims) == larger


def test_what_moves_tensors_grows_with_them_once_they_fill_the_gpu():
    # 132 × 2048 = 270,336 threads: of 2,703,360 values 4 times as many take 4 times as long, of 135,168 the first doubling costs nothing
    scale = Scale(H200, OWN, 4.0)
    factor, low, high, stream_ns = scale.law(kernel(operator="aten::gelu", dims=[[1320, 2048]], types=["float"]))
    assert factor == 4.0 and low < 4.0 < high
    assert stream_ns == pytest.approx(2 * 4 * 2_703_360 / H200.bandwidth_bytes_per_s * 1e9)  # read and written once
    factor, *_, stream_ns = scale.law(kernel(operator="aten::gelu", dims=[[66, 2048]], types=["float"]))
    assert factor == 2.0 and math.isnan(stream_ns)


def test_attention_grows_once_every_sm_has_a_block():
    # 2 × 8 heads × 512 ÷ 128 queries are 64 blocks on 132 SMs; 16 times as many are 1,024
    attention = kernel(
        category="attention", flop_operator="aten::_scaled_dot_product_flash_attention", flop_dims=[[2, 8, 512, 64]] * 3
    )
    assert Scale(H200, OWN, 16.0).law(attention)[0] == pytest.approx(1024 / 132)
    assert Scale(H200, OWN, 2.0).law(attention)[0] == 1.0


def test_what_touches_parameters_alone_stays():
    assert Scale(H200, OWN, 4.0).law(kernel(operator="aten::copy_", dims=[[3072, 768], [3072, 768]], types=["float"] * 2))[
        :3
    ] == (1, 1, 1)
    assert Scale(H200, OWN, 4.0).law(kernel(category="communication"))[:3] == (1, 1, 1)
    assert Scale(H200, OWN, 4.0).law(kernel(operator="aten::_foreach_norm", dims=[[[9, 9]]]))[:3] == (
        1,
        1,
        1,
    )  # gradients, clipped


def test_a_recorded_batch_tells_the_step_of_another():
    """A batch of 2 launches for 4.4 ms a step; the same model with 32 takes 8.95 ms by the stopwatch."""
    then = json.loads((RECORDINGS / "gpt_small" / "truth.json").read_text())
    result = result_of("small_batch")
    with library().open(result.lead.recording_id) as recording:
        given = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        twice, found = at_batches(given, [2.0, 16.0])
        assert sum(math.prod(shape) * n for shape, n in parameters_of(recording, 0).items()) == then["params"]
    measured = 1e3 * then["step_s_pipelined"]
    assert found.step_ms == pytest.approx(measured, rel=0.15)
    assert found.low_ms < measured < found.high_ms
    assert found.rate == pytest.approx(16 * given.step_ms / found.step_ms)
    assert twice.step_ms == pytest.approx(given.step_ms, rel=0.01)  # the host is the limit: nothing but more samples
    assert sentence([found]).startswith("16 times the batch: about")
    assert twice.low_ms < given.step_ms / 1.37 and twice.high_ms > 1.37 * given.step_ms  # the host's own pace at another time


def test_a_smaller_batch_is_bounded_by_what_the_gpu_hides_of_the_host():
    """A batch of 32 takes 8.95 ms; one of 2 launches for 4.38 ms by the stopwatch, which the trace of the larger one cannot tell well."""
    then = json.loads((RECORDINGS / "small_batch" / "truth.json").read_text())
    result = result_of("gpt_small")
    with library().open(result.lead.recording_id) as recording:
        context = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        small, half, twice = at_batches(context, [1 / 16, 0.5, 2.0])
    measured = 1e3 * then["step_s_pipelined"]
    assert small.low_ms < measured < small.high_ms
    assert small.step_ms == pytest.approx(measured, rel=0.3)
    assert small.step_ms <= half.step_ms < context.step_ms < twice.step_ms
    assert small.high_ms == half.high_ms, "less work takes no longer than the step as it is"


def test_a_kernel_of_half_a_millisecond_has_work_to_do():
    # 100 MB at the memory's rate take 21 µs, eight times that 167: of 500 µs all but the 50 that latency can be grow
    frame = pd.DataFrame({"gpu_op_id": [1], "dur_ns": [500_000]})
    kernels = _Kernels(np.array([False]), np.array([0]), np.array([0]), frozenset())
    stream_ns = 100e6 / H200.bandwidth_bytes_per_s * 1e9
    context = SimpleNamespace(rank=SimpleNamespace(gpu=H200))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scale, "law", lambda *_: (2.0, 2.0, 2.0, stream_ns))
        assert _edit(context, frame, kernels, 2.0).dur_ns == (950_000,)


class Recorded:
    """One step of 100 ns on a GPU that holds 100 MB of parameters; every event is (time, bytes)."""

    def __init__(self, events, gradients=(), optimizer=(), casts=(), zeroed=()):
        totals = accumulate((size for _, size in events), initial=100 * MB)
        self.events = [(at, total) for (at, _), total in zip(events, list(totals)[1:], strict=True)]
        self.gradients, self.optimizer, self.casts, self.zeroed = gradients, optimizer, casts, zeroed

    def frame(self, sql, parameters=()):
        return pd.DataFrame(self.events, columns=["time_ns", "total"])

    def rows(self, sql, parameters=()):
        if "host_start_ns, host_end_ns" in sql:
            return [(0, 100)]
        if "FROM collectives" in sql:
            return []
        if "Optimizer.step#" in sql:
            return list(self.optimizer)
        if "Optimizer.zero_grad#" in sql:
            return list(self.zeroed)
        if "concrete_inputs" in sql:
            return [(json.dumps([shape]), json.dumps(["", "15"]), 1) for shape in self.casts]
        if "input_types" in sql:
            return [(at, json.dumps([shape]), json.dumps(["float"])) for at, shape in self.gradients]
        return [(json.dumps([shape]), 1) for _, shape in self.gradients]


def test_activations_grow_and_the_rest_stays():
    # 100 MB stay; the forward pass holds 60 MB more; the backward pass frees them while a gradient of 40 MB comes
    events = [(1, 0), (10, 60 * MB), (50, 40 * MB), (60, -60 * MB)]
    recording = Recorded(events, gradients=[(55, [10, MB])])
    assert memory_at(recording, 0, [1]) == [200 * MB]  # both at 50 ns, as recorded
    assert memory_at(recording, 0, [4]) == [
        500 * MB
    ]  # 100 + 4 × 100: before it is accumulated the first gradient is not told from activations
    later = Recorded(
        [(1, 0), (10, 60 * MB), (50, 40 * MB), (60, -60 * MB), (70, 50 * MB)], gradients=[(55, [10, MB]), (90, [10, MB])]
    )
    assert memory_at(later, 0, [1]) == [200 * MB]


def test_the_optimizers_own_memory_stays():
    recording = Recorded([(1, 0), (10, 20 * MB), (20, -20 * MB), (80, 300 * MB), (90, -300 * MB)], optimizer=[(75, 95)])
    assert memory_at(recording, 0, [4]) == [400 * MB]  # the activations are 80 MB then: the optimizer's 300 are still the peak
    assert memory_at(recording, 0, [16]) == [420 * MB]  # 100 + 16 × 20


def test_gradients_of_the_last_step_are_no_activations():
    recording = Recorded([(1, 80 * MB), (5, -80 * MB), (10, 20 * MB), (20, -20 * MB)])
    assert memory_at(recording, 0, [4]) == [180 * MB]  # as recorded, and the activations' 80 at their peak


@pytest.mark.parametrize("at_start", [0, 5 * MB])
def test_gradients_that_are_zeroed_between_the_passes_are_no_activations(at_start):
    """40 of the 100 MB are the last step's gradients, until 30 ns; 20 MB of activations, then 40 of gradients again. What the last step left is 5 MB at most."""
    events = [(1, at_start), (2, -at_start), (10, 20 * MB), (30, -40 * MB), (50, 40 * MB), (60, -20 * MB)]
    recording = Recorded(events, gradients=[(45, [10, MB])], zeroed=[(25, 30)])
    assert memory_at(recording, 0, [1]) == [120 * MB]
    assert memory_at(recording, 0, [4]) == [180 * MB]  # 60 + 40 + 4 × 20


def test_copies_of_parameters_that_autocast_keeps_stay():
    # of 60 MB, 20 are a 16-bit copy of a parameter of ten million values
    recording = Recorded([(1, 0), (10, 60 * MB), (20, -60 * MB)], gradients=[(99, [10, MB])], casts=[[10, MB]])
    assert memory_at(recording, 0, [3]) == [240 * MB]  # 100 + 20 + 3 × 40


def test_a_trace_without_allocations_tells_no_memory():
    assert memory_at(Recorded([]), 0, [2]) is None
