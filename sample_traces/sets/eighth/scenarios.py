"""Scenarios of the eighth set: loops of an engine with hooks, with one slow habit each or none."""

from __future__ import annotations

from typing import Any

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.eighth import loops as loop
from sawtooth.sample_traces.sets.eighth import own_loops as own
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third

TIMING: dict[str, Any] = {"timed_s": 4.2, "after_s": 0.8, "synced_steps": 5, "first_steps": 4}


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING | options.pop("plan", {}), **options)


STACKS: dict[str, Any] = {"profiler": {"with_stack": True}, "active": 2}

# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "pyramid_math": scenario("attention written out", loop.pyramid, 48, False, fix="pyramid", change="F.scaled_dot_product_attention", rules=("unfused-attention",)),
    "pyramid": scenario(NONE, loop.pyramid, 48, True),
    "sounds_two": scenario("two workers make spectrograms", loop.sounds, 128, 2, fix="sounds_ten", change="num_workers 2 -> 10", rules=("data-loader-starves-gpu",)),
    "sounds_ten": scenario(NONE, loop.sounds, 128, 10),
    "folding_tf32": scenario("no autocast: TF32 products", loop.folding, 2, "tf32", False, fix="folding", change="bf16 autocast", rules=("fp32-products",)),
    "folding_recomputed": scenario("every block is computed again, with memory to spare", loop.folding, 2, "bf16", True, fix="folding", change="no checkpointing", rules=("recomputation",)),
    "folding": scenario(NONE, loop.folding, 2, "bf16", False),
    "speaker_rows": scenario("sounds are stretched row by row, and each row's length is read", loop.speaker, 32, True, fix="speaker_gathered", change="one gather for all rows", rules=("host-waits-for-gpu",)),
    "speaker_gathered": scenario(NONE, loop.speaker, 32, False),
    "boxes_first": scenario("bf16 convolutions in channels-first layout", loop.detector, 48, False, fix="boxes_last", change="channels_last", rules=("layout-conversions",)),
    "boxes_last": scenario(NONE, loop.detector, 48, True),
    "events_inline": scenario("num_workers=0: lines of JSON are read in the loop's process", loop.events, 512, 0, fix="events_workers", change="num_workers 0 -> 6", rules=("data-loader-starves-gpu",)),
    "events_workers": scenario(NONE, loop.events, 512, 6),
    "motion_eager": scenario("launch-bound: an integrator's small kernels", own.motion, 512, False, fix="motion_graph", change="one CUDA graph per step", rules=("launch-bound",)),
    "motion_graph": scenario(NONE, own.motion, 512, True),
    "columns_2501": scenario("2501 columns: no multiple of 8", loop.columns, 32768, 0, fix="columns_2504", change="filled up to 2504", rules=("misaligned-dimensions",)),
    "columns_2504": scenario(NONE, loop.columns, 32768, 2504),
    "lines_decoded": scenario("every step's letters are decoded and compared in Python", loop.lines, 64, True, fix="lines_apart", change="no decoding while training", rules=("python-between-operators",)),
    "lines_apart": scenario(NONE, loop.lines, 64, False),
    "gains_loop": scenario("advantages are added up step by step in Python", own.gains, 256, True, fix="gains_product", change="one product with a matrix of discounts", rules=("loop-indexing",)),
    "gains_product": scenario(NONE, own.gains, 256, False),
    "voices_fp32": scenario("fp32 convolutions, TF32 off", own.voices, 16, "fp32", fix="voices", change="allow_tf32 = True", rules=("tf32-off",)),
    "voices": scenario(NONE, own.voices, 16, "tf32"),
    "views_one_by_one": scenario("the target's average is kept weight by weight", loop.views, 128, True, fix="views_together", change="torch._foreach_lerp_", rules=("tensors-one-by-one",), plan=STACKS),
    "views_together": scenario(NONE, loop.views, 128, False),
    "fields": scenario(NONE + " (healthy)", loop.fields, 48),
    "stereo": scenario(NONE + " (healthy)", loop.stereo, 16),
    "folding_large": scenario(NONE + " (healthy)", loop.folding, 4, "bf16", False, 256),
    "documents_cpu": scenario("the mask is made on the CPU and copied", loop.documents, 4, True, fix="documents", change="made once on the GPU", rules=("tensors-made-on-cpu",)),
    "documents": scenario(NONE, loop.documents, 4, False),
    "coder_by_hand": scenario("the loss head is written by hand in FP32", loop.coder, 8, False, fix="coder_compiled", change="the loss compiled", rules=("loss-head",)),
    "coder_compiled": scenario(NONE, loop.coder, 8, True),
    "hearts_16": scenario("batch 16: the host cannot keep up", loop.hearts, 16, fix="hearts_1024", change="batch 16 -> 1024", rules=("small-batch",)),
    "hearts_1024": scenario(NONE, loop.hearts, 1024),
}
# fmt: on
