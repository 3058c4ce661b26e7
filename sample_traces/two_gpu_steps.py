"""The step of a rank of a job of two: its model and batches, and how it shares the work with the other."""

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

from sawtooth.sample_traces.sets.first.models import Block, GptShape, python_work
from sawtooth.sample_traces.two_gpu_jobs import JOBS, Job
from sawtooth.sample_traces.two_gpu_models import MODELS, sharded

Step = Callable[[], object]
WORLD = 2
BF16 = torch.bfloat16


def model_of(job: Job) -> nn.Module:
    """The model of a job, on this rank's GPU."""
    model = MODELS[job.model].build(job.shape).cuda()
    return nn.SyncBatchNorm.convert_sync_batchnorm(model) if job.sync_norm else model


class Late(torch.utils.data.IterableDataset[tuple[Tensor, ...]]):
    """Batches without end from a small pool, late where the job says so."""

    def __init__(self, pool: list[tuple[Tensor, ...]], job: Job, rank: int) -> None:
        self.pool, self.job, self.late_s = pool, job, job.late_s[rank]

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield pinned batches."""
        wait = time.sleep if self.job.sleeps else python_work
        for index in itertools.count():
            step, part = divmod(index, self.job.micro)
            if self.late_s and part == 0 and step % self.job.late_every == 0:
                wait(self.late_s)
            yield self.pool[index % len(self.pool)]


def batches(job: Job, rank: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches on this rank's GPU without end."""
    many = round(job.batch * job.more_work[rank])
    pool = [MODELS[job.model].batch(job.shape, many) for _ in range(4)]
    pinned = [tuple(part.pin_memory() for part in batch) for batch in pool]
    for batch in torch.utils.data.DataLoader(Late(pinned, job, rank), batch_size=None):
        yield tuple(part.cuda(non_blocking=True) for part in batch)


def adam_of(model: nn.Module, job: Job) -> torch.optim.Optimizer:
    """AdamW, fused or one tensor at a time."""
    options: dict[str, Any] = {"foreach": False} if job.single_adam else {"fused": True}
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The loss of one micro-batch in bf16."""
    with torch.autocast("cuda", dtype=BF16):
        loss: Tensor = model(*batch)
        return loss


def replicated(job: Job, rank: int) -> Step:
    """Each rank trains a copy (DDP, or an all-reduce a parameter by hand) or a shard of it (FSDP)."""
    model = model_of(job)
    if job.share in ("fsdp", "fsdp1"):
        model = sharded(model, reshard=job.reshard, older=job.share == "fsdp1", prefetch=job.prefetch)
    ddp = DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=job.bucket_mb) if job.share == "ddp" else None
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
        adam.step()
        if job.reads:
            loss.item()

    return step


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks in the forward pass, the gradient as it is in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Sum `x` over the ranks."""
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Pass the gradient on."""
        return gradient


class HalfBlock(nn.Module):
    """One rank's half of a two-layer perceptron: columns of the first matrix, rows of the second, and a sum over the ranks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width // WORLD), nn.Linear(4 * width // WORLD, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, width) to the same."""
        return x + SumOverRanks.apply(self.down(nn.functional.gelu(self.up(self.norm(x)))))


def tensor_parallel(job: Job, rank: int) -> Step:
    """Every matrix is split over the ranks."""
    model = nn.Sequential(*[HalfBlock(job.shape.width) for _ in range(2 * job.shape.layers)]).cuda()
    adam = adam_of(model, job)
    x = torch.randn(job.batch, job.shape.seq, job.shape.width, device="cuda")

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=BF16):
            model(x).float().pow(2).mean().backward()
        adam.step()

    return step


class Stage(nn.Module):
    """Some layers of a transformer."""

    def __init__(self, shape: GptShape, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(shape) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, width) to the same."""
        for block in self.blocks:
            x = block(x, None)
        return x


def pipeline(job: Job, rank: int) -> Step:
    """Rank 0 holds the first layers, rank 1 the others, in bf16; one forward, one backward."""
    first = job.first_layers or job.shape.layers // WORLD
    stage = Stage(job.shape, job.shape.layers - first if rank else first).cuda().to(BF16)
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


BUILDERS = {"tensor": tensor_parallel, "pipeline": pipeline}


def steps_of(name: str, rank: int) -> Step:
    """The step of one rank of a job, on this process's GPU; its process group must be there."""
    return BUILDERS.get(JOBS[name].share, replicated)(JOBS[name], rank)
