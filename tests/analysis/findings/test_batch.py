"""Tests of another batch size: kernels and memory by hand, and two real recordings.

The recordings are of one model with batches of 2 and 32, timed by a stopwatch.
"""

from __future__ import annotations

import json
import math
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.findings.batch import step
from sawtooth.analysis.findings.batch.growth import Scale
from sawtooth.analysis.findings.batch.memory import memory_at, parameters_of
from sawtooth.analysis.findings.batch.overlap import Overlap
from sawtooth.analysis.findings.batch.step import ALIKE, _edit, _Kernels, _kernels_of, at_batches, sentence
from sawtooth.analysis.findings.context import RuleContext
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
    usual |= {"blocks": 0.0, "block_threads": 0.0, "beside": 1.0, "kernel": "gemm", "launches": 1.0}
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
def test_the_side_of_a_product_without_parameters_grows(operator, dims, larger):
    assert Scale(H200, OWN, 4.0)._larger(operator, dims) == larger


def test_copying_kernels_grow_with_tensors_that_fill_the_gpu():
    # 132 × 2048 = 270,336 threads: of 2,703,360 values 4 times as many take 4 times as long, of 135,168 the first doubling costs nothing
    scale = Scale(H200, OWN, 4.0)
    factor, low, high, stream_ns, _ = scale.law(kernel(operator="aten::gelu", dims=[[1320, 2048]], types=["float"]))
    assert factor == 4.0 and low < 4.0 < high
    assert stream_ns == pytest.approx(2 * 4 * 2_703_360 / H200.bandwidth_bytes_per_s * 1e9)  # read and written once
    factor, _, _, stream_ns, _ = scale.law(kernel(operator="aten::gelu", dims=[[66, 2048]], types=["float"]))
    assert factor == 2.0 and math.isnan(stream_ns)


def test_attention_grows_once_every_sm_has_a_block():
    # 2 × 8 heads × 512 ÷ 128 queries are 64 blocks on 132 SMs; 16 times as many are 1,024
    attention = kernel(
        category="attention", flop_operator="aten::_scaled_dot_product_flash_attention", flop_dims=[[2, 8, 512, 64]] * 3
    )
    assert Scale(H200, OWN, 16.0).law(attention)[0] == pytest.approx(1024 / 132)
    assert Scale(H200, OWN, 2.0).law(attention)[0] == 1.0


def test_work_only_on_parameters_does_not_grow():
    assert Scale(H200, OWN, 4.0).law(kernel(operator="aten::copy_", dims=[[3072, 768], [3072, 768]], types=["float"] * 2))[
        :3
    ] == (1, 1, 1)
    assert Scale(H200, OWN, 4.0).law(kernel(category="communication"))[:3] == (1, 1, 1)
    assert Scale(H200, OWN, 4.0).law(kernel(operator="aten::_foreach_norm", dims=[[[9, 9]]]))[:3] == (
        1,
        1,
        1,
    )  # gradients, clipped


def test_a_recorded_batch_predicts_the_step_of_another():
    """A recorded batch gives the step of another batch size.

    A batch of 2 launches for 4.4 ms a step. The same model with 32 takes 8.95 ms by the stopwatch.
    """
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


def test_the_step_of_a_smaller_batch_is_bounded_by_the_hidden_host_time():
    """A batch of 32 takes 8.95 ms.

    A batch of 2 launches for 4.38 ms by the stopwatch, which the larger one's trace does not show well.
    """
    then = json.loads((RECORDINGS / "small_batch" / "truth.json").read_text())
    result = result_of("gpt_small")
    with library().open(result.lead.recording_id) as recording:
        context = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        small, half, twice = at_batches(context, [1 / 16, 0.5, 2.0])
    measured = 1e3 * then["step_s_pipelined"]
    assert small.low_ms < measured < small.high_ms
    assert small.host_limits and not twice.host_limits and small.step_ms == pytest.approx(measured, rel=0.5)
    assert "the host determines the step" in sentence([small]) and "about" in sentence([twice])
    assert small.step_ms <= half.step_ms < context.step_ms < twice.step_ms
    assert small.high_ms == half.high_ms, "less work takes no longer than the step as it is"


@pytest.mark.parametrize(("rounds", "then_ns"), [(1.0, 950_000), (100.0, 995_000)])
def test_a_kernel_of_half_a_millisecond_grows_with_the_batch(rounds, then_ns):
    # 100 MB at the memory's rate take 21 µs, eight times that 167: of 500 µs all but the 50 that latency can be grow, and all but 5 where each thread makes 100 rounds
    frame = pd.DataFrame({"gpu_op_id": [1], "start_ns": [0], "end_ns": [500_000], "dur_ns": [500_000]})
    kernels = _Kernels(np.array([False]), np.array([0]), np.array([0]), np.array([1.0]), np.array([1.0]), frozenset())
    stream_ns = 100e6 / H200.bandwidth_bytes_per_s * 1e9
    context = SimpleNamespace(rank=SimpleNamespace(gpu=H200))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scale, "law", lambda *_: (2.0, 2.0, 2.0, stream_ns, rounds))
        assert _edit(context, frame, kernels, 2.0).dur_ns == (then_ns,)


def test_threads_of_few_blocks_make_many_rounds():
    # batch norm: one block of 512 threads for each of 64 channels, over 32 × 64 × 48 × 48 values; a sum's grid grows with what it sums
    norm = {"operator": "aten::native_batch_norm", "dims": [[32, 64, 48, 48], [64]], "types": ["float"] * 2}
    assert Scale(H200, frozenset({(64,)}), 4.0).law(kernel(**norm, blocks=64.0, block_threads=512.0)).rounds == 144
    assert Scale(H200, OWN, 4.0).law(kernel(**norm, category="reduction", blocks=64.0, block_threads=512.0)).rounds == 1


def test_products_without_shapes_grow_once_their_tiles_fill_the_gpu():
    # For 64 tiles on 132 SMs, four times as many take 256 ÷ 132 as long; beside another such kernel, on half of the
    # SMs, 256 ÷ 66.
    alone = Scale(H200, OWN, 4.0).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0))
    assert alone.factor == pytest.approx(256 / 132) and alone.low < alone.factor < alone.high
    beside = Scale(H200, OWN, 4.0).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0, beside=2.0))
    assert beside.factor == pytest.approx(math.sqrt(256 / 132 * 256 / 66)) and beside.low < 256 / 132 < 256 / 66 < beside.high
    smaller = Scale(H200, OWN, 0.25).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0))
    assert (smaller.low, smaller.factor, smaller.high) == (0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    "name", ["sm90_xmma_gemm_tn_n_tilesize64x64x32_warp", "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4"]
)
@pytest.mark.parametrize(
    ("launches", "blocks", "times", "factor"),
    [
        (256, 64, 4, 1),  # a time step of one layer: 16 samples, then 64, in one tile's 64 rows
        (256, 64, 16, 256 / 132),  # 256 samples in four of them
        (16, 96, 4, 384 / 132),  # 16 time steps together have 256 rows, in full tiles
        (256, 64, 1 / 4, 1),
    ],
)
def test_a_time_steps_product_grows_once_its_tile_is_full_of_samples(name, launches, blocks, times, factor):
    dims = [[16, 128, 640], [[2560, 640]] * 4, [], [6563840], [2, 16, 640]]
    product = kernel(category="gemm", operator="aten::_cudnn_rnn", kernel=name, dims=dims, launches=launches, blocks=blocks)
    assert Scale(H200, OWN, times).law(product).factor == pytest.approx(factor)


@pytest.mark.parametrize(
    "dims", [None, [], [[], [], [], [], []], [[0, 4, 8], [], [], [], [2, 0, 8]], [[4, 4, 8], [], [], [], []]]
)
def test_a_recurrent_product_without_known_shapes_has_full_tiles(dims):
    product = kernel(category="gemm", operator="aten::_cudnn_rnn", kernel="gemm_tilesize64x64x32", dims=dims, blocks=132.0)
    assert Scale(H200, OWN, 4.0).law(product).factor == 4.0


def test_operations_that_overlap_share_the_time():
    # from 0 to 10 and from 5 to 15: each has 5 ns to itself and half of 5
    overlap = Overlap.of(pd.DataFrame({"start_ns": [0, 5, 20], "end_ns": [10, 15, 30]}))
    assert overlap.beside.tolist() == [1.5, 1.5, 1.0] and overlap.part_ns.tolist() == [7.5, 7.5, 10.0]
    assert overlap.filled_ns(np.full(3, 10.0), np.array([20.0, 10.0, 10.0])) == 32.5


class Recorded:
    """One step of 100 ns on a GPU that already holds 100 MB.

    A block is (start, end, bytes, in the backward pass). The optimizer's step runs from 80 to 95 ns.
    """

    def __init__(self, *blocks, gradients=(), operators=(), optimizer=((80, 95),)):
        self.blocks, self.gradients, self.operators, self.optimizer = blocks, gradients, operators, optimizer

    def frame(self, sql, parameters=()):
        if "AS total" in sql:
            events = sorted(
                (at, sign * size) for start, end, size, _ in self.blocks for at, sign in ((start, 1), (end, -1)) if at < 1000
            )
            totals = accumulate((size for _, size in events), initial=100 * MB)
            return pd.DataFrame(zip([at for at, _ in events], list(totals)[1:], strict=True), columns=["time_ns", "total"])
        if "FROM allocations" in sql:
            rows = [(start, size, int(backward), end) for start, end, size, backward in self.blocks]
            return pd.DataFrame(rows, columns=["start_ns", "bytes", "thread_id", "end_ns"])
        spans = ["thread_id", "start_ns", "end_ns"]
        if "regexp_matches" in sql:
            steps = [(0, *span) for span in self.optimizer] if "Optimizer" in parameters[0] else [(1, 40, 70)]
            return pd.DataFrame(steps, columns=spans)
        rows = [(0, start, end, place, name) for place, (start, end, _, name) in enumerate(self.operators)]
        return pd.DataFrame(rows, columns=[*spans, "signature_id", "name"])

    def rows(self, sql, parameters=()):
        if "FROM steps" in sql:
            return [(0, 100)] if "counted" in sql else [(100,)]
        if "FROM collectives" in sql:
            return []
        if "FROM signatures" in sql:
            return [
                (place, json.dumps(dims), json.dumps(["float"] * len(dims)))
                for place, (_, _, dims, _) in enumerate(self.operators)
            ]
        if "count(DISTINCT" in sql:
            return [(json.dumps([shape]), 1) for _, shape in self.gradients]
        return [(at, json.dumps([shape]), json.dumps(["float"])) for at, shape in self.gradients]


FORWARD, BACKWARD, NEVER = False, True, 2000
GRADIENT = [10, MB]  # 40 MB


def test_activations_grow_and_earlier_memory_does_not():
    recording = Recorded((10, 60, 60 * MB, FORWARD), (50, 55, 40 * MB, BACKWARD))
    assert memory_at(recording, 0, [1, 4]) == [200 * MB, 500 * MB]  # 100 + 4 × (60 + 40), a gradient of activations


def test_memory_of_gradients_does_not_grow():
    """One gradient lives after the pass, into the next step.

    One is accumulated and freed at once, as under DDP.
    """
    kept = Recorded((10, 60, 60 * MB, FORWARD), (50, NEVER, 40 * MB, BACKWARD))
    assert memory_at(kept, 0, [4]) == [380 * MB]  # 100 + 40 + 4 × 60
    freed = Recorded((10, 60, 60 * MB, FORWARD), (50, 58, 40 * MB, BACKWARD), gradients=[(55, GRADIENT)])
    assert memory_at(freed, 0, [4]) == [380 * MB]
    without = Recorded((10, 60, 60 * MB, FORWARD), (50, NEVER, 40 * MB, BACKWARD), optimizer=())
    assert memory_at(without, 0, [4]) == [380 * MB]  # as long as the step, where no optimizer is marked


def test_optimizer_memory_does_not_grow_and_memory_of_the_loop_does():
    recording = Recorded((10, 90, 20 * MB, FORWARD), (85, 90, 300 * MB, FORWARD))  # logits that a variable still has
    assert memory_at(recording, 0, [4, 16, 0.5]) == [480 * MB, 720 * MB, 410 * MB]


def test_memory_for_copies_of_parameters_does_not_grow():
    """Memory of parameter copies does not grow with the batch.

    These are Autocast's copy of a parameter, and the part of an operator's scratch that is as large as its parameters.
    An operator's output grows with the batch.
    """
    cast = Recorded((10, 60, 20 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=[(9, 11, [GRADIENT], "aten::_to_copy")])
    assert memory_at(cast, 0, [3]) == [120 * MB]
    layers = [(9, 20, [[8, 10], [GRADIENT]], "aten::convolution")]  # a list of parameters, as a recurrent network has it
    scratch = Recorded((10, 15, 100 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=layers)
    assert memory_at(scratch, 0, [3]) == [320 * MB]  # 100 + 40 + 3 × 60
    returned = Recorded((10, 60, 100 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=layers)
    assert memory_at(returned, 0, [3]) == [400 * MB]


def test_scratch_memory_of_a_recurrent_layer_has_a_fixed_part():
    """For two layers that is 40 MB for the parameters and 2 × 8 MiB.

    Blocks smaller than its scratch grow with the batch, such as a gradient of 50 MB that was made contiguous.
    """
    passes = [(9, 20, [[4, 128, 10], [GRADIENT], [], [10 * MB], [2, 4, 10]], "aten::_cudnn_rnn_backward")]
    blocks = (10, 15, 60 * MB, FORWARD), (11, 14, 50 * MB, FORWARD)
    fixed = 100 * MB + 40 * MB + (16 << 20)
    recording = Recorded(*blocks, gradients=[(99, GRADIENT)], operators=passes)
    assert memory_at(recording, 0, [1, 3]) == [210 * MB, fixed + 3 * (210 * MB - fixed)]


def test_a_trace_without_allocations_predicts_no_memory():
    assert memory_at(Recorded(), 0, [2]) is None


def test_a_kernel_shares_the_gpu_with_other_kernels(monkeypatch):
    # Kernel 1 runs its 10 ns beside kernel 2, kernel 3 alone: two and one at a time, also where 2 is left out.
    monkeypatch.setattr(step, "launched_by_optimizer", lambda *_: np.empty(0, np.int64))
    monkeypatch.setattr(step, "launched_inside", lambda *_: np.empty(0, np.int64))
    work = pd.DataFrame({"gpu_op_id": [1, 2, 3], "start_ns": [0, 0, 20], "end_ns": [10, 10, 30]})
    work = work.assign(**dict.fromkeys([*ALIKE, "blocks", "cpu_op_id"], work["gpu_op_id"]))
    context = SimpleNamespace(work=work, recording=None, rank=SimpleNamespace(device=0))
    assert _kernels_of(context, work, {}).beside.tolist() == [2, 2, 1]
    assert _kernels_of(context, work[work["gpu_op_id"] != 2], {}).beside.tolist() == [2, 1]
