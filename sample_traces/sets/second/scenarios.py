"""Scenarios of the second set, recorded after the analysis was written.

Nothing may be fitted to them. Each pair differs in one change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.second import models as m
from sawtooth.sample_traces.sets.second import more_models as mixed
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.workload import Workload

TIMING: dict[str, Any] = {"active": 4, "timed_s": 6.5, "after_s": 5.5, "synced_steps": 10, "min_steps": 10, "marks": True}


def llama(batch: int, seq: int = 1024, norm_by_hand: bool = False, **options: Any) -> Workload:
    """Return the training of a Llama with two layers."""
    model = m.Llama(layers=2, norm_by_hand=norm_by_hand)
    return w.train(model, w.on_gpu(lambda: w.tokens(32000, batch, seq + 1)), lambda f, t: f(t), samples=batch, **options)


def llama_lengths(batch: int) -> Workload:
    """Return the training of a Llama whose sequences have a different length in each step."""
    data = w.lengths(8192, batch, (257, 513, 385, 897, 193, 641, 769, 321))
    return w.train(m.Llama(512, 2, 8, 8, 8192), data, lambda f, t: f(t), samples=batch)


def t5(batch: int, fused: bool, **options: Any) -> Workload:
    """Return the training of a T5 with one encoder layer and one decoder layer."""
    data = w.on_gpu(lambda: (*w.tokens(16000, batch, 512), *w.tokens(16000, batch, 512)))
    return w.train(m.T5(layers=1, fused=fused), data, lambda f, a, b: f(a, b), samples=batch, **options)


def bert(batch: int, vocab: int, **options: Any) -> Workload:
    """Return the training of a BERT with three layers on sequences of 256 tokens."""
    data = w.on_gpu(lambda: (*w.tokens(30000, batch, 256), *w.tokens(30000, batch, 256)))
    return w.train(mixed.MaskedLanguage(vocab), data, lambda f, a, b: f(a, b), samples=batch, **options)


def pictures(make: Callable[[], nn.Module], batch: int, source: str = "gpu", **options: Any) -> Workload:
    """Return the classification of random images.

    The images are in GPU, pinned or pageable memory, or are JPEGs from N loader workers ("jpeg:N").
    """
    kind, _, count = source.partition(":")
    if kind == "jpeg":
        data = w.jpegs(batch, int(count))
    else:
        data = w.on_gpu(lambda: w.images(batch)) if kind == "gpu" else w.pinned(lambda: w.images(batch), pin=kind == "pinned")
    return w.train(make(), data, w.classify, samples=batch, **options)


def segmentation(batch: int, source: str = "gpu", **options: Any) -> Workload:
    """Return the training of a U-Net on images of 256 × 256 with a class per pixel."""

    def make() -> w.Batch:
        return torch.randn(batch, 3, 256, 256), torch.randint(0, 8, (batch, 256, 256))

    data = w.on_gpu(make) if source == "gpu" else w.pinned(make, pin=source == "pinned")
    return w.train(m.UNet(), data, w.classify, samples=batch, **options)


def recommendation(batch: int, **options: Any) -> Workload:
    """Return the training of a DLRM with 26 tables, by SGD."""

    def make() -> w.Batch:
        return torch.randn(batch, 13), torch.randint(0, 50_000, (26, batch)), torch.rand(batch).round()

    def loss(model: nn.Module, dense: Tensor, sparse: Tensor, clicked: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(model(dense, sparse).float(), clicked)

    return w.train(mixed.Dlrm(rows=50_000), w.pinned(make), loss, samples=batch, sgd=True, precision="tf32", **options)


def sound(batch: int, samples: int) -> Workload:
    """Return the training of a WaveNet."""
    data = w.on_gpu(lambda: w.tokens(256, batch, samples))
    return w.train(mixed.WaveNet(), data, lambda f, t: f(t), samples=batch, precision="tf32", optimizer="foreach")


def experts(rows: int, batched: bool) -> Workload:
    """Return the training of three layers with eight routed experts each."""
    model = nn.Sequential(nn.Linear(512, 512), *(mixed.Experts(512, 8, batched) for _ in range(3)), nn.Linear(512, 512))
    data = w.on_gpu(lambda: (torch.randn(rows, 512), torch.randn(rows, 512)))
    return w.train(model, data, lambda f, x, y: F.mse_loss(f(x).float(), y), samples=rows)


def volumes(batch: int) -> Workload:
    """Return the training of a 3-D autoencoder on 64³ voxels."""
    data = w.on_gpu(lambda: (torch.randn(batch, 1, 64, 64, 64),))
    return w.train(mixed.volumes(), data, lambda f, x: F.mse_loss(f(x), x), samples=batch, precision="tf32", optimizer="single")


def encoder(batch: int, graph: bool) -> Workload:
    """Return the training of a small encoder over sets of vectors, eager or as one CUDA graph."""
    layer = nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True)
    data = w.on_gpu(lambda: (torch.randn(batch, 32, 256), torch.randn(batch, 32, 256)))
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return w.train(model, data, lambda f, x, y: F.mse_loss(f(x).float(), y), samples=batch, graph=graph)


def rows_of_a_table(batch: int, workers: int) -> Workload:
    """Return the training of a small network on a table that is read row by row."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return w.train(model, w.records(batch, 64, workers), w.classify, samples=batch, precision="fp32", optimizer="foreach")


def vit(layers: int = 3) -> nn.Module:
    """Return a ViT-B with fewer layers."""
    return m.ViT(layers=layers)


def scenario(
    planted: str, make: Callable[..., Workload], *sizes: Any, fix: str = "", change: str = "", **options: Any
) -> Scenario:
    """Return a scenario of this set.

    It has 4 profiled steps, over 5 s of telemetry before and after them, and step marks.
    """
    cfg = {"workload": make.__name__, "sizes": [getattr(s, "__name__", str(s)) for s in sizes]}
    cfg |= {key: str(value) for key, value in options.items()}
    return Scenario(planted, lambda **more: make(*sizes, **options, **more), fix, change, cfg=cfg, **TIMING)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    # Pairs, each after its fix.
    "vit_fp32": scenario("fp32 products, TF32 off", pictures, vit, 64, precision="fp32", fix="vit_tf32", change="allow_tf32 = True"),
    "vit_tf32": scenario("TF32 products", pictures, vit, 64, precision="tf32", fix="vit_bf16", change="bf16 autocast"),
    "vit_bf16": scenario(NONE, pictures, vit, 64),
    "unet_pageable": scenario("pageable images and masks", segmentation, 16, "pageable", fix="unet_pinned", change="pin_memory"),
    "unet_pinned": scenario(NONE, segmentation, 16, "pinned"),
    "llama_adam_single": scenario("single-tensor AdamW", llama, 4, optimizer="single", fix="llama", change="AdamW(fused=True)"),
    "llama": scenario(NONE, llama, 4),
    "llama_norm_by_hand": scenario("RMSNorm written out", llama, 4, norm_by_hand=True, fix="llama", change="F.rms_norm"),
    "mixer_eager": scenario("eager TF32 mixer", pictures, m.Mixer, 96, precision="tf32", fix="mixer_compiled", change="torch.compile"),
    "mixer_compiled": scenario(NONE, pictures, m.Mixer, 96, precision="tf32", compiled=True),
    "encoder_eager": scenario("launch-bound: small kernels", encoder, 16, False, fix="encoder_graph", change="one CUDA graph per step"),
    "encoder_graph": scenario(NONE, encoder, 16, True),
    "bert_30522": scenario("a vocabulary of 30522: no multiple of 8", bert, 48, 30522, fix="bert_30528", change="vocabulary padded to 30528"),
    "bert_30528": scenario(NONE, bert, 48, 30528),
    "vgg_first": scenario("bf16 convolutions in channels-first layout", pictures, m.vgg, 64, fix="vgg_last", change="channels_last"),
    "vgg_last": scenario(NONE, pictures, m.vgg, 64, channels_last=True),
    "dlrm_reads": scenario("six figures read back every step", recommendation, 2048, read="metrics", fix="dlrm", change="nothing is read"),
    "dlrm": scenario(NONE, recommendation, 2048),
    "mobile_inline": scenario("num_workers=0", pictures, m.efficientnet, 64, "jpeg:0", fix="mobile_workers", change="num_workers 0 -> 8"),
    "mobile_workers": scenario(NONE, pictures, m.efficientnet, 64, "jpeg:8"),
    "t5_math": scenario("attention as products and a softmax", t5, 32, False, fix="t5_sdpa", change="F.scaled_dot_product_attention"),
    "t5_sdpa": scenario(NONE, t5, 32, True),
    "experts_batched": scenario(NONE, experts, 8192, True),
    "convnext_clip_by_hand": scenario("gradients clipped one by one, each norm read", pictures, m.convnext, 64, clip="by_hand", fix="convnext_clip", change="clip_grad_norm_"),
    "convnext_clip": scenario(NONE, pictures, m.convnext, 64, clip="foreach"),
    # Loops that are not part of a pair.
    "wavenet": scenario(NONE, sound, 8, 16000),
    "llama_lengths": scenario("lengths that vary from step to step", llama_lengths, 16),
    "volumes": scenario(NONE, volumes, 4),
    "table_rows": scenario("a table read row by row", rows_of_a_table, 512, 4),
}
# fmt: on
