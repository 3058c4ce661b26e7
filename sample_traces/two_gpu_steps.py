"""The training step of one of two ranks: its model, its batches, and how it shares the work."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from sawtooth.sample_traces.sets.eighth.large import ParallelBlock
from sawtooth.sample_traces.sets.first.models import Block, GptShape, python_work
from sawtooth.sample_traces.two_gpu_jobs import Job
from sawtooth.sample_traces.two_gpu_models import MODELS, sharded

Step = Callable[[], object]
WORLD = 2
BF16 = torch.bfloat16


def model_of(job: Job) -> nn.Module:
    """Return the model of a job, on this rank's GPU."""
    model = MODELS[job.model].build(job.shape).cuda()
    return nn.SyncBatchNorm.convert_sync_batchnorm(model) if job.sync_norm else model


class Late(torch.utils.data.IterableDataset[tuple[Tensor, ...]]):
    """Endless batches from a small pool, late if the job says so."""

    def __init__(self, pool: list[tuple[Tensor, ...]], job: Job, rank: int) -> None:
        self.pool, self.job, self.rank, self.late_s = pool, job, rank, job.late_s[rank]

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield pinned batches."""
        wait = time.sleep if self.job.sleeps else python_work
        for index in itertools.count():
            step, part = divmod(index, self.job.micro)
            if self.late_s and part == 0 and step % self.job.late_every == 0:
                wait(self.late_s)
            batch = self.pool[index % len(self.pool)]
            ends = self.job.epoch and (step + 1) % self.job.epoch == 0
            yield tuple(tensor[: round(self.job.last[self.rank] * len(tensor))] for tensor in batch) if ends else batch


def batches(job: Job, rank: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield endless batches on this rank's GPU."""
    many = round(job.batch * job.more_work[rank])
    pool = [MODELS[job.model].batch(job.shape, many) for _ in range(4)]
    pinned = [tuple(part.pin_memory() for part in batch) for batch in pool]
    for batch in torch.utils.data.DataLoader(Late(pinned, job, rank), batch_size=None):
        yield tuple(part.cuda(non_blocking=True) for part in batch)


def adam_of(model: nn.Module, job: Job) -> torch.optim.Optimizer:
    """Return AdamW, fused or single-tensor."""
    options: dict[str, Any] = {"foreach": False} if job.single_adam else {"fused": True}
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the loss of one micro-batch in bf16."""
    with torch.autocast("cuda", dtype=BF16):
        loss: Tensor = model(*batch)
        return loss


def replicated(job: Job, rank: int) -> Step:
    """Return a step in which each rank trains a copy of the model or a shard of it.

    A copy uses DDP, or one all-reduce per parameter; a shard uses FSDP.
    """
    model = model_of(job)
    if job.share in ("fsdp", "fsdp1"):
        model = sharded(model, reshard=job.reshard, older=job.share == "fsdp1", prefetch=job.prefetch)
    ddp = None
    if job.share == "ddp":
        ddp = DistributedDataParallel(model, [rank], bucket_cap_mb=job.bucket_mb, find_unused_parameters=job.unused)
    wrapped = ddp or model
    adam, source = adam_of(model, job), batches(job, rank)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        for index in range(job.micro):
            quiet = job.no_sync and index < job.micro - 1
            with ddp.no_sync() if ddp is not None and quiet else contextlib.nullcontext():
                loss = loss_of(wrapped, next(source)) / job.micro
                loss.backward()
        if job.share == "by_hand":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        if job.clips:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        if job.mean_loss:
            loss = loss.detach()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if job.reads:
            loss.item()

    return step


class SumOverRanks(torch.autograd.Function):
    """Sum over the ranks in the forward pass; pass the gradient unchanged in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Sum `x` over the ranks."""
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return the gradient unchanged."""
        return gradient


class HalfBlock(nn.Module):
    """One rank's half of a two-layer MLP, with a sum over the ranks.

    It has half of the first matrix' columns and half of the second's rows.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width // WORLD), nn.Linear(4 * width // WORLD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, seq, width) from the same shape."""
        return x + SumOverRanks.apply(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class HalfAttention(nn.Module):
    """One rank's half of the heads of causal attention, with a sum over the ranks."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads // WORLD
        self.qkv, self.out = nn.Linear(width, 3 * width // WORLD), nn.Linear(width // WORLD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, seq, width) from the same shape."""
        many, seq, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(many, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + SumOverRanks.apply(self.out(y.transpose(1, 2).reshape(many, seq, -1)))


def clip(parameters: list[nn.Parameter]) -> None:
    """Clip gradients by their norm over all ranks, each of which has a part of them."""
    norms = torch._foreach_norm([p.grad for p in parameters if p.grad is not None])
    total = torch.stack(list(norms)).pow(2).sum()
    dist.all_reduce(total)
    nn.utils.clip_grads_with_norm_(parameters, 1.0, total.sqrt())


def tensor_parallel(job: Job, rank: int) -> Step:
    """Return a step in which every matrix is split over the ranks.

    If the model has attention heads, they are split too.
    """
    shape = job.shape
    model = nn.Sequential()
    for _ in range(shape.layers):
        model.append(HalfAttention(shape.width, shape.heads) if job.share == "heads" else HalfBlock(shape.width))
        model.append(HalfBlock(shape.width))
    model.cuda()
    adam = adam_of(model, job)
    x = torch.randn(job.batch, job.shape.seq, job.shape.width, device="cuda")

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=BF16):
            model(x).float().pow(2).mean().backward()
        if job.clips:
            clip(list(model.parameters()))
        adam.step()

    return step


class Stage(nn.Module):
    """Some layers of a transformer.

    With `parallel`, the layers run their MLP in parallel with the attention.
    """

    def __init__(self, shape: GptShape, layers: int, *, parallel: bool) -> None:
        super().__init__()
        make_block: Callable[[], nn.Module] = lambda: ParallelBlock(shape.width, shape.heads) if parallel else Block(shape)  # noqa: E731
        self.blocks = nn.ModuleList(make_block() for _ in range(layers))
        turn = torch.zeros(shape.seq, shape.width // shape.heads, device="cuda", dtype=BF16)
        self.extra: tuple[Tensor | None, ...] = (turn + 1, turn) if parallel else (None,)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, seq, width) from the same shape."""
        for block in self.blocks:
            x = block(x, *self.extra)
        return x


def pipeline(job: Job, rank: int) -> Step:
    """Return the step of a two-stage pipeline in bf16, with a 1F1B schedule.

    Rank 0 has the first layers, rank 1 the others.
    """
    first = job.first_layers or job.shape.layers // WORLD
    layers = job.shape.layers - first if rank else first
    stage = Stage(job.shape, layers, parallel=job.model == "coder").cuda().to(BF16)
    adam = adam_of(stage, job)
    place = PipelineStage(stage, rank, WORLD, torch.device("cuda", rank))
    schedule = Schedule1F1B(place, job.micro, loss_fn=lambda out, target: (out.float() - target.float()).pow(2).mean())
    x = torch.randn(job.batch * job.micro, job.shape.seq, job.shape.width, device="cuda", dtype=BF16)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x, losses=[])
        adam.step()

    return step


BUILDERS = {"tensor": tensor_parallel, "heads": tensor_parallel, "pipeline": pipeline}


def step_of_job(job: Job, rank: int) -> Step:
    """Return the step of one rank of a job, on this process's GPU.

    The process group must exist.
    """
    return BUILDERS.get(job.share, replicated)(job, rank)
