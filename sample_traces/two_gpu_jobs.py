"""Jobs of two ranks: the model, the way in which the ranks share the work, and planted faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sawtooth.sample_traces.sets.first.models import GptShape

SMALL = GptShape(layers=6, width=512, seq=256)
MEDIUM = GptShape(layers=12, width=768, heads=12, seq=512)
LARGE = GptShape(layers=12, width=1024, heads=16, seq=512)


@dataclass(frozen=True)
class Job:
    """One job: the model, the way in which its ranks share the work, and the planted faults per rank."""

    shape: GptShape = MEDIUM
    batch: int = 8  # Per rank and micro-batch.
    share: str = "ddp"  # Or fsdp, fsdp1 (the older wrapper), by_hand (one all-reduce per parameter), tensor, heads, pipeline.
    model: str = "gpt"  # A key of `two_gpu_models.MODELS`.
    first_layers: int = 0  # Layers of the pipeline's first stage; 0: half of all layers.
    prefetch: bool = True  # The older FSDP wrapper gathers one layer ahead in the backward pass.
    bucket_mb: int = 25
    reshard: bool = True  # FSDP frees gathered weights after each forward pass.
    micro: int = 1  # Micro-batches per step.
    no_sync: bool = False  # Gradients are summed only after the last micro-batch.
    sync_norm: bool = False
    single_adam: bool = False
    reads: bool = False  # The loss is read in every step.
    mean_loss: bool = False  # Before that, a separate all-reduce averages the loss over the ranks.
    clips: bool = False  # Gradients are clipped by their norm over all ranks.
    unused: bool = False  # DDP looks for parameters without a gradient.
    epoch: int = 0  # Steps after which the data start again; 0: never.
    last: tuple[float, ...] = (1.0, 1.0)  # Factor for the batch in an epoch's last step, per rank.
    more_work: tuple[float, ...] = (1.0, 1.0)  # Factor for the batch, per rank.
    late_s: tuple[float, ...] = (0.0, 0.0)  # Python time before the batch is ready, per rank.
    late_every: int = 1
    sleeps: bool = False  # `late_s` is waiting, not computing.
    crowded: int = -1  # The GPU on which a second process also computes.
    profiled: int = 6  # Number of profiled steps.


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
    """A job, one change to it, and the rule that proposes the change."""

    before: Job
    change: dict[str, Any]
    rule: str
    after: str = ""  # The name of another pair's changed job, if it is also this pair's job after the change.

    def sides(self) -> dict[str, Job]:
        """Return the job before the change and, unless another pair has it, the job after it."""
        before = {"before": self.before}
        return before if self.after else before | {"after": replace(self.before, **self.change)}


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
DIT = GptShape(layers=16, width=1152, heads=16)
WIDE = GptShape(layers=10, width=1536, heads=16, seq=1024)
DEEP = GptShape(layers=8, width=2048, heads=16, seq=1024)
UNEVEN = GptShape(layers=16, width=1536, heads=16, seq=768)
MIXER = GptShape(layers=8, width=768)
LINEAR = GptShape(layers=8, width=768, seq=1024, vocab=16000)
CONFORMER = GptShape(layers=8, width=512, seq=400)
DENSE = GptShape()
EVEN: dict[str, Any] = {"more_work": (1.0, 1.0)}
PAIRS |= {
    "prefetch_dit": Pair(Job(DIT, 32, "fsdp1", "dit", prefetch=False), {"prefetch": True}, "fsdp-prefetch"),
    "one_by_one_dit": Pair(Job(DIT, 48, "by_hand", "dit"), {"share": "ddp"}, "gradients-reduced-after"),
    "lengths_dit": Pair(
        Job(DIT, 36, model="dit", more_work=(1.0, 5 / 3)), {"batch": 48} | EVEN, "straggling-rank", "one_by_one_dit_after"
    ),
    "reshard_wide": Pair(Job(WIDE, 8, "fsdp"), {"reshard": False}, "fsdp-reshard"),
    "syncs_dit": Pair(Job(DIT, 24, model="dit", micro=4, profiled=4), {"no_sync": True}, "accumulation-syncs"),
    "micro_deep": Pair(Job(DEEP, 16, "pipeline", micro=2, profiled=4), {"micro": 8, "batch": 4}, "pipeline-bubble"),
    "stages_uneven": Pair(
        Job(UNEVEN, 4, "pipeline", micro=6, first_layers=10, profiled=4), {"first_layers": 8}, "pipeline-bubble"
    ),
    "loader_mixer": Pair(
        Job(MIXER, 96, model="mixer", late_s=(0.06, 0.0), late_every=4, sleeps=True, profiled=12),
        {"late_s": (0.0, 0.0)},
        "straggling-rank",
    ),
    "crowd_linear": Pair(Job(LINEAR, 16, model="linear", crowded=1), {"crowded": -1}, "straggling-rank"),
    "lengths_linear": Pair(
        Job(LINEAR, 20, model="linear", more_work=(1.0, 0.6)), {"batch": 16} | EVEN, "straggling-rank", "crowd_linear_after"
    ),
    "host_mixer": Pair(
        Job(MIXER, 96, model="mixer", late_s=(0.0, 0.016), profiled=8),
        {"late_s": (0.0, 0.0)},
        "straggling-rank",
        "loader_mixer_after",
    ),
    "buckets_dense": Pair(Job(DENSE, 96, model="dense", bucket_mb=1), {"bucket_mb": 25}, "small-collectives"),
    "one_by_one_dense": Pair(
        Job(DENSE, 96, "by_hand", "dense"), {"share": "ddp"}, "gradients-reduced-after", "buckets_dense_after"
    ),
    "syncs_conformer": Pair(Job(CONFORMER, 24, model="conformer", micro=4), {"no_sync": True}, "accumulation-syncs"),
}
CODER = GptShape(layers=10, width=1024, heads=16, seq=768, vocab=24000)
WHISPER = GptShape(layers=6, width=768, heads=12, seq=128, vocab=20000)
UNET = GptShape(width=64, seq=160)
PYRAMID = GptShape(layers=3, seq=256)
CLICKS = GptShape(width=64, vocab=20000)
PARALLEL = GptShape(layers=16, width=1408, heads=22, seq=896)
PAIRS |= {
    "syncs_coder": Pair(Job(CODER, 6, model="coder", micro=3, profiled=4), {"no_sync": True}, "accumulation-syncs"),
    "lengths_coder": Pair(Job(CODER, 10, model="coder", more_work=(1.6, 1.0)), {"batch": 13} | EVEN, "straggling-rank"),
    "loader_unet": Pair(
        Job(UNET, 24, model="unet", late_s=(0.05, 0.0), late_every=4, sleeps=True, profiled=12),
        {"late_s": (0.0, 0.0)},
        "straggling-rank",
    ),
    "crowd_pyramid": Pair(Job(PYRAMID, 40, model="pyramid", crowded=0), {"crowded": -1}, "straggling-rank"),
    "buckets_whisper": Pair(Job(WHISPER, 8, model="whisper", bucket_mb=1), {"bucket_mb": 25}, "small-collectives"),
    "reshard_whisper": Pair(Job(WHISPER, 16, "fsdp", "whisper"), {"reshard": False}, "fsdp-reshard"),
    "micro_parallel": Pair(
        Job(PARALLEL, 12, "pipeline", "coder", micro=2, profiled=4), {"micro": 8, "batch": 3}, "pipeline-bubble"
    ),
    "one_by_one_clicks": Pair(Job(CLICKS, 8192, "by_hand", "clicks"), {"share": "ddp"}, "gradients-reduced-after"),
    "prefetch_coder": Pair(Job(CODER, 12, "fsdp1", "coder", prefetch=False), {"prefetch": True}, "fsdp-prefetch"),
}
JOBS |= {f"{name}_{side}": job for name, pair in PAIRS.items() for side, job in pair.sides().items()}
JOBS |= {
    "unused_experts": Job(GptShape(layers=6, width=768, heads=12), 8, model="experts", unused=True),
    "mean_loss_unet": Job(UNET, 16, model="unet", mean_loss=True, reads=True),
    "heads_clipped": Job(GptShape(layers=8, width=1280, heads=20, seq=640), 12, "heads", clips=True),
    "last_batch_coder": Job(CODER, 12, model="coder", epoch=4, last=(1.0, 0.25), profiled=8),
    "clipped_library": Job(GptShape(layers=10, width=896, heads=14, seq=512, vocab=32000), 12, "fsdp", "library", clips=True),
    "tp_wide": Job(GptShape(layers=8, width=1024, seq=384), 24, "tensor"),
    "crowd_vit": Job(VIT, 96, model="vit", crowded=0),
    "tp_deep": Job(GptShape(layers=6, width=1536, seq=512), 16, "tensor"),
    "adam_t5": Job(T5, 16, model="t5", single_adam=True),
}
