"""Scenarios of the ninth set: complete training scripts, with one slow habit each or none.

The most informative ones come first.
"""

from __future__ import annotations

from typing import Any

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.ninth import pictures, words, worlds
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third

TIMING: dict[str, Any] = {"timed_s": 4.0, "after_s": 0.7, "synced_steps": 4, "first_steps": 4}


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING | options.pop("plan", {}), **options)


STACKS: dict[str, Any] = {"profiler": {"with_stack": True}, "active": 2}

# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "radiance_fp32": scenario("FP32 products, TF32 off", pictures.radiance, 8192, "fp32", fix="radiance", change="allow_tf32 = True", rules=("tf32-off",)),
    "radiance": scenario(NONE, pictures.radiance, 8192, "tf32"),
    "coded_first": scenario("bf16 convolutions in channels-first layout", pictures.coded, 128, False, fix="coded_last", change="channels_last", rules=("layout-conversions",)),
    "coded_last": scenario(NONE, pictures.coded, 128, True),
    "listener_tf32": scenario("no autocast: TF32 products", words.listener, 160, "tf32", fix="listener", change="bf16 autocast", rules=("fp32-products",)),
    "listener": scenario(NONE, words.listener, 160, "bf16"),
    "albert_new": scenario("GELU is written out", words.albert, 256, False, fix="albert", change="F.gelu(approximate='tanh')", rules=("unfused-activation",)),
    "albert": scenario(NONE, words.albert, 256, True),
    "triples_foreach": scenario("Adam of a huge table, foreach", words.triples, 16384, False, fix="triples", change="Adam(fused=True)", rules=("optimizer-foreach",)),
    "triples": scenario(NONE, words.triples, 16384, True),
    "electra_recomputed": scenario("every layer is computed again, with memory to spare", words.electra, 96, True, fix="electra", change="no checkpointing", rules=("recomputation",)),
    "electra": scenario(NONE, words.electra, 96, False),
    "perceiver_pixels_math": scenario("attention written out", pictures.perceiver, 96, False, fix="perceiver_pixels", change="F.scaled_dot_product_attention", rules=("unfused-attention",)),
    "perceiver_pixels": scenario(NONE, pictures.perceiver, 96, True),
    "chat_32003": scenario("32003 words: no multiple of 8", words.chat, 24, 32003, fix="chat_32064", change="vocabulary filled up to 32064", rules=("misaligned-dimensions",)),
    "chat_32064": scenario(NONE, words.chat, 24, 32064),
    "land_confused": scenario("which kinds are mistaken is counted by NumPy at every step", pictures.land, 16, True, True, fix="land", change="counted on the GPU", rules=("host-waits-for-gpu",)),
    "land_pageable": scenario("batches are copied from pageable memory", pictures.land, 16, False, False, fix="land", change="pin_memory", rules=("pageable-copies",)),
    "land": scenario(NONE, pictures.land, 16, True, False),
    "taste_on_host": scenario("what nobody took is drawn on the CPU", words.taste, 512, True, fix="taste", change="drawn on the GPU", rules=("operators-on-cpu",)),
    "taste": scenario(NONE, words.taste, 512, False),
    "captioned_inline": scenario("num_workers=0: pictures and captions are prepared in the loop's process", pictures.captioned, 256, 0, fix="captioned_workers", change="num_workers 0 -> 10", rules=("data-loader-starves-gpu",)),
    "captioned_workers": scenario(NONE, pictures.captioned, 256, 10),
    "world_checked": scenario("anomaly detection is left on", worlds.world, 64, True, fix="world", change="no anomaly detection", rules=("anomaly-detection",)),
    "world": scenario(NONE, worlds.world, 64, False),
    "tracker": scenario(NONE + " (healthy)", worlds.tracker, 96),
    "curves": scenario(NONE + " (healthy; FP32 by need)", worlds.curves, 4096),
    "slots_collected": scenario("garbage is collected at every step", pictures.slots, 64, True, fix="slots", change="no collection", rules=("garbage-collection",), plan=STACKS),
    "slots": scenario(NONE, pictures.slots, 64, False),
}
# fmt: on
