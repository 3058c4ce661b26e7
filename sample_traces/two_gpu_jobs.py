"""Jobs of two ranks: what each trains, how its ranks share the work, and what is planted on which rank."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from sawtooth.sample_traces.sets.first.models import Block, GptShape, python_work
from sawtooth.sample_traces.two_gpu_models import MODELS, sharded

Step = Callable[[], object]
WORLD = 2
BF16 = torch.bfloat16
SMALL = GptShape(layers=6, width=512, seq=256)
MEDIUM = GptShape(layers=12, width=768, heads=12, seq=512)
LARGE = GptShape(layers=12, width=1024, heads=16, seq=512)


@dataclass(frozen=True)
class Job:
    """One job: what it trains, how its ranks share the work, and what is planted on which rank."""

    shape: GptShape = MEDIUM
    batch: int = 8  # of each rank and micro-batch
    share: str = "ddp"  # or fsdp, fsdp1 (the older wrapper), by_hand (one all-reduce a parameter), tensor, pipeline
    model: str = "gpt"  # of `two_gpu_models.MODELS`
    first_layers: int = 0  # of the pipeline's first stage; 0: half of them
    prefetch: bool = True  # the older wrapper of FSDP gathers a layer ahead in the backward pass
    bucket_mb: int = 25
    reshard: bool = True  # FSDP frees what it gathered after each forward pass
    micro: int = 1  # micro-batches a step
    no_sync: bool = False  # gradients are summed after the last micro-batch only
    sync_norm: bool = False
    single_adam: bool = False
    reads: bool = False  # the loss is read every step
    more_work: tuple[float, ...] = (1.0, 1.0)  # times the batch, a rank
    late_s: tuple[float, ...] = (0.0, 0.0)  # Python before the batch is there, a rank
    late_every: int = 1
    sleeps: bool = False  # `late_s` is waiting, not computing
    crowded: int = -1  # the GPU on which a second process computes too
    profiled: int = 6  # steps


JOBS = {
    "ddp_small": Job(SMALL, 16),
    "ddp_big": Job(GptShape(layers=12, width=1024, heads=16, seq=1024), 8),
    "ddp_read": Job(SMALL, 32, reads=True),
    "buckets_1": Job(bucket_mb=1),
    "buckets_25": Job(bucket_mb=25),
    "per_param": Job(SMALL, 16, share="by_hand"),
    "accum": Job(batch=4, micro=4),
    "accum_nosync": Job(batch=4, micro=4, no_sync=True),
    "adam_loop": Job(SMALL, 16, single_adam=True),
    "fsdp": Job(share="fsdp"),
    "fsdp_keep": Job(share="fsdp", reshard=False),
    "tp": Job(SMALL, 32, share="tensor"),
    "pp_2": Job(LARGE, 8, share="pipeline", micro=2),
    "pp_8": Job(LARGE, 4, share="pipeline", micro=8),
    "syncbn": Job(model="resnet", batch=32, sync_norm=True),
    "uneven_gpt": Job(MEDIUM, 8, more_work=(1.0, 1.6)),
    "uneven_conv": Job(model="resnet", batch=64, more_work=(1.0, 1.6)),
    "loader_4th": Job(SMALL, 64, late_s=(0.0, 0.04), late_every=4, sleeps=True),
    "loader_late": Job(SMALL, 64, late_s=(0.01, 0.0), sleeps=True),
    "slow_host": Job(SMALL, 24, late_s=(0.0, 0.006)),
    "slow_gpu": Job(LARGE, 16, crowded=1),
}


@dataclass(frozen=True)
class Pair:
    """A job, the same with one thing changed, and the rule that asks for the change."""

    before: Job
    change: dict[str, Any]
    rule: str

    def sides(self) -> dict[str, Job]:
        """The job before and after, the change undone where the job has it."""
        return {"before": self.before, "after": replace(self.before, **self.change)}


LLAMA = GptShape(layers=8, width=1280, heads=20, seq=640, vocab=32000)
BERT = GptShape(layers=6, width=768, heads=12, seq=256, vocab=30528)
VIT = GptShape(layers=10, width=768, heads=12)
T5 = GptShape(layers=4, width=768, heads=12, seq=256, vocab=16000)
CONVNEXT = GptShape(layers=3, width=96)
PAIRS = {
    "syncs_llama": Pair(Job(LLAMA, 2, model="llama", micro=6, profiled=4), {"no_sync": True}, "accumulation-syncs"),
    "reshard_llama": Pair(Job(LLAMA, 4, "fsdp", "llama"), {"reshard": False}, "fsdp-reshard"),
    "buckets_vit": Pair(Job(VIT, 24, model="vit", bucket_mb=1), {"bucket_mb": 25}, "small-collectives"),
    "micro_wide": Pair(
        Job(GptShape(layers=16, width=1536, heads=16), 8, "pipeline", micro=2, profiled=4),
        {"micro": 8, "batch": 2},
        "pipeline-bubble",
    ),
    "lengths_bert": Pair(
        Job(BERT, 24, model="bert", more_work=(1.0, 1.75)), {"batch": 33, "more_work": (1.0, 1.0)}, "straggling-rank"
    ),
    "one_by_one_llama": Pair(Job(LLAMA, 4, "by_hand", "llama"), {"share": "ddp"}, "gradients-reduced-after"),
    "loader_t5": Pair(
        Job(T5, 64, model="t5", late_s=(0.0, 0.07), late_every=4, sleeps=True, profiled=12),
        {"late_s": (0.0, 0.0)},
        "straggling-rank",
    ),
    "prefetch_llama": Pair(Job(LLAMA, 4, "fsdp1", "llama", prefetch=False), {"prefetch": True}, "fsdp-prefetch"),
    "syncs_bert": Pair(Job(BERT, 12, model="bert", micro=3), {"no_sync": True}, "accumulation-syncs"),
    "reshard_bert": Pair(Job(BERT, 48, "fsdp", "bert"), {"reshard": False}, "fsdp-reshard"),
    "stages": Pair(
        Job(GptShape(layers=12, width=1280, heads=20, seq=768), 4, "pipeline", micro=4, first_layers=8),
        {"first_layers": 6},
        "pipeline-bubble",
    ),
    "lengths_vit": Pair(
        Job(VIT, 32, model="vit", more_work=(1.5, 1.0)), {"batch": 40, "more_work": (1.0, 1.0)}, "straggling-rank"
    ),
    "one_by_one_convnext": Pair(Job(CONVNEXT, 32, "by_hand", "convnext"), {"share": "ddp"}, "gradients-reduced-after"),
    "buckets_t5": Pair(Job(T5, 12, model="t5", bucket_mb=1), {"bucket_mb": 25}, "small-collectives"),
}
JOBS |= {f"{name}_{side}": job for name, pair in PAIRS.items() for side, job in pair.sides().items()}
JOBS |= {
    "tp_wide": Job(GptShape(layers=8, width=1024, seq=384), 24, "tensor"),
    "crowd_vit": Job(VIT, 96, model="vit", crowded=0),
    "adam_t5": Job(T5, 16, model="t5", single_adam=True),
}


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
