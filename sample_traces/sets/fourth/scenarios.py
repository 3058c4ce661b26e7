"""Scenarios of the fourth set: generation, profiles of a single step, and evaluation between steps.

No earlier set contains these models. They were recorded on an H200 after the analysis was written. Some recordings were then
inspected, the others only used for evaluation (`docs/evidence/accuracy.md` lists them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.fourth import models as m
from sawtooth.sample_traces.sets.second import models as second
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.third.scenarios import UNMARKED
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params

TIMING: dict[str, Any] = {"timed_s": 4.4, "after_s": 1.0, "synced_steps": 6}
Decode = Callable[[], object]


def captions(batch: int, new: int, fixed: bool) -> Workload:
    """Return captions of images, with a fixed number of words each, read back only at the end.

    `fixed` uses a cache of constant size and one CUDA graph per word.
    """
    model = m.Captioner().to(DEVICE, torch.bfloat16).eval()
    images = torch.randn(batch, 3, 224, 224, device=DEVICE, dtype=torch.bfloat16)
    words, place = torch.zeros(batch, 1, device=DEVICE, dtype=torch.int64), torch.zeros(1, device=DEVICE, dtype=torch.int64)
    places, cache, seen = torch.arange(new, device=DEVICE), [], []
    with torch.no_grad():
        seen = model.encode_images(images)
    if fixed:
        shape = (2, batch, 6, new, 64)
        cache = [tuple(torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16)) for _ in model.qkv]

    @torch.no_grad()
    def one() -> None:
        words.copy_(model(words, place, seen, cache, True))
        place.add_(1)

    @torch.no_grad()
    def grow() -> None:
        shown, last = model.encode_images(images), torch.zeros_like(words)
        cache: m.Cache = []
        text = []
        for i in range(new):
            last = model(last, places[i : i + 1], shown, cache, False)
            text.append(last)
        torch.cat(text, 1).cpu()

    @torch.no_grad()
    def replayed(decode: Decode) -> None:
        for stored_pair, fresh in zip(seen, model.encode_images(images), strict=True):
            for to, new_part in zip(stored_pair, fresh, strict=True):
                to.copy_(new_part)
        words.zero_()
        place.zero_()
        text = []
        for _ in range(new):
            decode()
            text.append(words.clone())
        torch.cat(text, 1).cpu()

    if not fixed:
        return Workload(grow, count_params(model), batch * new)
    decode = as_graph(one, warm_ups=1)
    return Workload(lambda: replayed(decode), count_params(model), batch * new, lambda: replayed(one))


def tables(batch: int, compiled: bool) -> Workload:
    """Return the classification of table rows by a transformer over their columns."""
    data = w.on_gpu(lambda: (torch.randn(batch, 48), torch.randint(0, 10, (batch,))))
    return w.train(m.TableTransformer(), data, w.classify, samples=batch, compiled=compiled)


def points(batch: int, optimizer: str) -> Workload:
    """Return the classification of point clouds."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 1024), torch.randint(0, 40, (batch,))))
    return w.train(m.point_net(), data, w.classify, samples=batch, optimizer=optimizer)


def streets(batch: int, **options: Any) -> Workload:
    """Return the prediction of a class for every pixel of an image."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 256, 256), torch.randint(0, 19, (batch, 128, 128))))
    return w.train(m.Segmenter(), data, w.classify, samples=batch, **options)


def language(batch: int, **options: Any) -> Workload:
    """Return next-token training of a small Llama on 512 tokens."""
    data = w.on_gpu(lambda: w.tokens(16000, batch, 513))
    return w.train(second.Llama(512, 3, 8, 4, 16000), data, lambda f, t: f(t), samples=batch, **options)


def boxes(batch: int, reads: bool) -> Workload:
    """Return the training of a one-stage detector.

    With `reads`, the host counts the cells with an object for each level and class group, in every step.
    """
    data = w.on_gpu(lambda: (w.images(batch)[0], torch.rand(batch, 28 * 28 + 14 * 14 + 7 * 7, device="cpu")))
    history: list[Any] = []

    def loss(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        total, begin = x.new_zeros(()), 0
        for level in model(x):
            level, part = level.float(), targets[:, begin : begin + level.shape[1]]
            begin += level.shape[1]
            object_there = (part > 0.9).float()[..., None]
            total = total + (F.softplus(level[..., :20]) * (1 - object_there)).mean()
            total = total + ((level[..., 20:] - 0.5).abs() * object_there).mean()
            if reads:
                history.append([(part > limit).sum().item() for limit in (0.5, 0.7, 0.9)])
                history.append(level.detach().amax((0, 1)).cpu())
        return total

    return w.train(m.Boxes(), data, loss, samples=batch)


def evaluated(batch: int, evaluate_every: int) -> Workload:
    """Return segmentation training that is evaluated regularly.

    Its loss on three more batches is read after every `evaluate_every` steps.
    """
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 256, 256), torch.randint(0, 19, (batch, 128, 128))))
    model, steps = m.Segmenter(48), 0
    work = w.train(model, data, w.classify, samples=batch)

    def step() -> None:
        nonlocal steps
        work.step()
        steps += 1
        if steps % evaluate_every == 0:
            model.eval()
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                _ = sum(w.classify(model, *next(data)).item() for _ in range(3))
            model.train()

    return Workload(step, work.params, batch)


def scenario(*words: Any, plan: dict[str, Any] | None = None, **options: Any) -> Scenario:
    """Return a scenario of this set.

    It has 4.4 s of training with telemetry before the profiled steps, one second after them, and step marks.
    """
    return timed_as_third(*words, plan=TIMING | (plan or {}), **options)


ONE_STEP = {"active": 1}  # By default, torchtitan records one step.

# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "captions_growing": scenario("a cache that grows word by word", captions, 16, 20, False, plan=UNMARKED | {"active": 2}, fix="captions_graph", change="a cache of one size and a CUDA graph a word"),
    "captions_graph": scenario(NONE, captions, 16, 20, True, plan=UNMARKED | {"active": 2}),
    "language_one_step": scenario("one tensor at a time in AdamW, one profiled step", language, 2, optimizer="single", plan=ONE_STEP),
    "streets_one_step": scenario("bf16 convolutions in channels-first layout, one profiled step", streets, 24, plan=ONE_STEP),
    "streets_evaluated": scenario("evaluation after every third step", evaluated, 8, 3, plan={"active": 6}),
    "points_single": scenario("single-tensor AdamW", points, 16, "single", fix="points_fused", change="AdamW(fused=True)"),
    "points_fused": scenario(NONE, points, 16, "fused"),
    "tables_eager": scenario("eager bf16 table transformer", tables, 4096, False, fix="tables_compiled", change="torch.compile"),
    "tables_compiled": scenario(NONE, tables, 4096, True),
    "boxes_reads": scenario("twelve reads a step", boxes, 16, True, fix="boxes_quiet", change="nothing is read"),
    "boxes_quiet": scenario(NONE, boxes, 16, False),
}
# fmt: on
