"""Tests of the step of another batch size: kernels by hand, and two real recordings.

The recordings are of one model with batches of 2 and 32, timed by a stopwatch.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.findings.batch import step
from sawtooth.analysis.findings.batch.growth import Scale
from sawtooth.analysis.findings.batch.overlap import Overlap
from sawtooth.analysis.findings.batch.step import SAME_LAUNCH, _edit, _Kernels, _kernels_of, batch_sentence, predict_batches
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.findings_of import library, result_of
from tests.support.paths import RECORDINGS

H200 = identify("NVIDIA H200", None, None, None, None)
OWN = frozenset({(3072, 768), (768, 3072), (3072,)})


def kernel(**changes):
    typical = {
        "category": "elementwise",
        "kind": "kernel",
        "flop_operator": None,
        "flop_dims": None,
        "flop_types": None,
        "flop_strides": None,
    }
    typical |= {"flop_concrete": None, "operator": None, "dims": None, "types": None, "concrete": None, "tensor_cores": None}
    typical |= {"blocks": 0.0, "block_threads": 0.0, "concurrency": 1.0, "kernel": "gemm", "launches": 1.0}
    return SimpleNamespace(**(typical | changes))


@pytest.mark.parametrize(
    ("operator", "dims", "larger"),
    [
        ("aten::addmm", [[3072], [4096, 768], [768, 3072], [], []], [[3072], [16384, 768], [768, 3072], [], []]),
        ("aten::mm", [[4096, 3072], [3072, 768]], [[16384, 3072], [3072, 768]]),  # The gradient of the activations.
        ("aten::mm", [[3072, 4096], [4096, 768]], [[3072, 16384], [16384, 768]]),  # The gradient of the weights.
        ("aten::bmm", [[96, 128, 64], [96, 64, 128]], [[384, 128, 64], [384, 64, 128]]),
    ],
)
def test_the_side_of_a_product_without_parameters_grows(operator, dims, larger):
    assert Scale(H200, OWN, 4.0)._scaled_dims(operator, dims) == larger


def test_copying_kernels_grow_with_tensors_that_fill_the_gpu():
    # The GPU has 132 × 2048 = 270,336 threads. Four times 2,703,360 values take four times as long. For 135,168 values, the first doubling costs nothing.
    scale = Scale(H200, OWN, 4.0)
    factor, low, high, stream_ns, _ = scale.law(kernel(operator="aten::gelu", dims=[[1320, 2048]], types=["float"]))
    assert factor == 4.0 and low < 4.0 < high
    assert stream_ns == pytest.approx(2 * 4 * 2_703_360 / H200.bandwidth_bytes_per_s * 1e9)  # Read and written once.
    factor, _, _, stream_ns, _ = scale.law(kernel(operator="aten::gelu", dims=[[66, 2048]], types=["float"]))
    assert factor == 2.0 and math.isnan(stream_ns)


def test_attention_grows_once_every_sm_has_a_block():
    # 2 × 8 heads × 512 ÷ 128 queries are 64 blocks on 132 SMs. 16 times as many are 1,024 blocks.
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
    clipped = kernel(operator="aten::_foreach_norm", dims=[[[9, 9]]])  # The norm of gradients, for clipping.
    assert Scale(H200, OWN, 4.0).law(clipped)[:3] == (1, 1, 1)


def test_a_recorded_batch_predicts_the_step_of_another():
    # A batch of 2 launches for 4.4 ms a step. The same model with 32 takes 8.95 ms by the stopwatch.
    then = json.loads((RECORDINGS / "gpt_small" / "truth.json").read_text())
    result = result_of("small_batch")
    with library().open(result.lead.recording_id) as recording:
        context = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        twice, found = predict_batches(context, [2.0, 16.0])
        assert sum(math.prod(shape) * n for shape, n in parameters_of(recording, 0).items()) == then["params"]
    measured = 1e3 * then["step_s_pipelined"]
    assert found.step_ms == pytest.approx(measured, rel=0.15)
    assert found.low_ms < measured < found.high_ms
    assert found.rate == pytest.approx(16 * context.step_ms / found.step_ms)
    assert twice.step_ms == pytest.approx(context.step_ms, rel=0.01)  # The host limits the step, so only the samples increase.
    assert batch_sentence([found]).startswith("16 times the batch: about")
    assert (
        twice.low_ms < context.step_ms / 1.37 and twice.high_ms > 1.37 * context.step_ms
    )  # The interval includes the host's speed at another time.


def test_the_step_of_a_smaller_batch_is_bounded_by_the_hidden_host_time():
    """A batch of 32 takes 8.95 ms.

    By the stopwatch, a batch of 2 takes 4.38 ms, because the host launches for as long. The trace of the larger batch does
    not show this time well.
    """
    then = json.loads((RECORDINGS / "small_batch" / "truth.json").read_text())
    result = result_of("gpt_small")
    with library().open(result.lead.recording_id) as recording:
        context = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        small, half, twice = predict_batches(context, [1 / 16, 0.5, 2.0])
    measured = 1e3 * then["step_s_pipelined"]
    assert small.low_ms < measured < small.high_ms
    assert small.host_limits and not twice.host_limits and small.step_ms == pytest.approx(measured, rel=0.5)
    assert "the host determines the step" in batch_sentence([small]) and "about" in batch_sentence([twice])
    assert small.step_ms <= half.step_ms < context.step_ms < twice.step_ms
    assert small.high_ms == half.high_ms, "less work takes no longer than the current step"


@pytest.mark.parametrize(("rounds", "then_ns"), [(1.0, 950_000), (100.0, 995_000)])
def test_a_kernel_of_half_a_millisecond_grows_with_the_batch(rounds, then_ns):
    # 100 MB need 21 µs at the memory's rate, and eight times that is 167 µs. Of 500 µs, all but 50 µs of latency grow, or all but 5 µs if each
    # thread makes 100 rounds.
    frame = pd.DataFrame({"gpu_op_id": [1], "start_ns": [0], "end_ns": [500_000], "dur_ns": [500_000]})
    kernels = _Kernels(np.array([False]), np.array([0]), np.array([0]), np.array([1.0]), np.array([1.0]), frozenset())
    stream_ns = 100e6 / H200.bandwidth_bytes_per_s * 1e9
    context = SimpleNamespace(rank=SimpleNamespace(gpu=H200))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scale, "law", lambda *_: (2.0, 2.0, 2.0, stream_ns, rounds))
        assert _edit(context, frame, kernels, 2.0).dur_ns == (then_ns,)


def test_threads_of_few_blocks_make_many_rounds():
    # Batch norm has one block of 512 threads for each of 64 channels, over 32 × 64 × 48 × 48 values. The grid of a sum grows with its input.
    norm = {"operator": "aten::native_batch_norm", "dims": [[32, 64, 48, 48], [64]], "types": ["float"] * 2}
    assert Scale(H200, frozenset({(64,)}), 4.0).law(kernel(**norm, blocks=64.0, block_threads=512.0)).rounds == 144
    assert Scale(H200, OWN, 4.0).law(kernel(**norm, category="reduction", blocks=64.0, block_threads=512.0)).rounds == 1


def test_products_without_shapes_grow_once_their_tiles_fill_the_gpu():
    # For 64 tiles on 132 SMs, four times as many take 256 ÷ 132 as long; beside another such kernel, on half of the
    # SMs, 256 ÷ 66.
    alone = Scale(H200, OWN, 4.0).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0))
    assert alone.factor == pytest.approx(256 / 132) and alone.low < alone.factor < alone.high
    beside = Scale(H200, OWN, 4.0).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0, concurrency=2.0))
    assert beside.factor == pytest.approx(math.sqrt(256 / 132 * 256 / 66)) and beside.low < 256 / 132 < 256 / 66 < beside.high
    smaller = Scale(H200, OWN, 0.25).law(kernel(category="gemm", operator="aten::_cudnn_rnn", blocks=64.0))
    assert (smaller.low, smaller.factor, smaller.high) == (0.25, 0.5, 1.0)


@pytest.mark.parametrize(
    "name", ["sm90_xmma_gemm_tn_n_tilesize64x64x32_warp", "cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4"]
)
@pytest.mark.parametrize(
    ("launches", "blocks", "times", "factor"),
    [
        (256, 64, 4, 1),  # A time step of one layer: 16 samples, then 64, in one tile's 64 rows.
        (256, 64, 16, 256 / 132),  # 256 samples in four of them
        (16, 96, 4, 384 / 132),  # 16 time steps together have 256 rows, in full tiles
        (256, 64, 1 / 4, 1),
    ],
)
def test_a_time_step_s_product_grows_once_its_tile_is_full(name, launches, blocks, times, factor):
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
    # From 0 to 10 and from 5 to 15: each runs alone for 5 ns and shares 5 ns.
    overlap = Overlap.of(pd.DataFrame({"start_ns": [0, 5, 20], "end_ns": [10, 15, 30]}))
    assert overlap.concurrency.tolist() == [1.5, 1.5, 1.0] and overlap.filled_ns.tolist() == [7.5, 7.5, 10.0]
    assert overlap.all_filled_ns(np.full(3, 10.0), np.array([20.0, 10.0, 10.0])) == 32.5


def test_a_kernel_shares_the_gpu_with_other_kernels(monkeypatch):
    # Kernel 1 runs its 10 ns together with kernel 2, and kernel 3 alone. The numbers are 2 and 1, also if kernel 2 is left out.
    monkeypatch.setattr(step, "launched_by_optimizer", lambda *_: np.empty(0, np.int64))
    monkeypatch.setattr(step, "launched_inside", lambda *_: np.empty(0, np.int64))
    work = pd.DataFrame({"gpu_op_id": [1, 2, 3], "start_ns": [0, 0, 20], "end_ns": [10, 10, 30]})
    work = work.assign(**dict.fromkeys([*SAME_LAUNCH, "blocks", "cpu_op_id"], work["gpu_op_id"]))
    context = SimpleNamespace(work=work, recording=None, rank=SimpleNamespace(device=0))
    assert _kernels_of(context, work, {}).concurrency.tolist() == [2, 2, 1]
    assert _kernels_of(context, work[work["gpu_op_id"] != 2], {}).concurrency.tolist() == [2, 1]
