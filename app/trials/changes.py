"""The changes that `sawtooth try` knows, with their code and the rules that advise them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, Literal

from sawtooth.ingest.capture.trials.changes import (
    collector,
    copies,
    environment,
    loader,
    optimizer,
    outermost,
    parallel,
    switches,
)

Result = Literal["same result", "rounding", "other result"]


@dataclass(frozen=True)
class Change:
    """A change of the training, its code, and the rules that advise it.

    ``result`` is the effect on the training's numbers. ``code`` has slots for values. The changes of a ``group`` replace each
    other, so only the fastest of them is kept. A change with ``needs_gpu`` has no effect on a CPU.
    """

    slug: str
    result: Result
    code: str
    rules: tuple[str, ...] = ()
    group: str = ""
    needs_gpu: bool = False

    def code_with(self, values: Mapping[str, Any]) -> str:
        """Return the code to write for this change."""
        texts = {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items()}
        return Template(self.code).safe_substitute(texts)


CHANGES = {
    change.slug: change
    for change in (
        Change(
            loader.WORKERS,
            "same result",
            "DataLoader(…, num_workers=$workers)",
            ("data-loader-starves-gpu", "prefetch-queue-hid-the-loader"),
        ),
        Change(loader.PERSISTENT, "same result", "DataLoader(…, persistent_workers=True)", ("workers-start-again",)),
        Change(loader.PREFETCH, "same result", "DataLoader(…, prefetch_factor=$factor)", ("batches-in-bursts",)),
        Change(loader.PINNED, "same result", "DataLoader(…, pin_memory=True)", ("pageable-copies",), needs_gpu=True),
        Change(
            copies.NON_BLOCKING,
            "same result",
            "x = x.to(device, non_blocking=True)",
            ("blocking-copies", "copies-not-overlapped"),
            needs_gpu=True,
        ),
        Change(collector.FROZEN, "same result", "gc.collect(); gc.freeze()   # after the first steps", ("garbage-collection",)),
        Change(
            collector.EVERY,
            "same result",
            "gc.disable()\nif step % $steps == 0:\n    gc.collect()",
            ("garbage-collection",),
            group="gc",
        ),
        Change(
            environment.SEGMENTS,
            "same result",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ("allocator-churn", "memory-near-limit"),
            needs_gpu=True,
        ),
        Change(environment.THREADS, "same result", "OMP_NUM_THREADS=$threads", ("workers-beyond-cores",)),
        Change(
            parallel.BUCKET,
            "same result",
            "DistributedDataParallel(…, bucket_cap_mb=$mb)",
            ("small-collectives", "exposed-communication"),
        ),
        Change(parallel.VIEW, "same result", "DistributedDataParallel(…, gradient_as_bucket_view=True)"),
        Change(parallel.STATIC, "same result", "DistributedDataParallel(…, static_graph=True)", ("unused-gradients",)),
        Change(switches.ANOMALY, "same result", "torch.autograd.set_detect_anomaly(False)", ("anomaly-detection",)),
        Change(
            optimizer.FUSED,
            "rounding",
            "torch.optim.$kind(…, fused=True)",
            ("optimizer-not-fused", "optimizer-foreach"),
            "update",
        ),
        Change(optimizer.FOREACH, "rounding", "torch.optim.$kind(…, foreach=True)", (), "update"),
        Change(
            switches.ATTENTION,
            "rounding",
            "torch.backends.cuda.enable_flash_sdp(True)",
            ("attention-fallback",),
            needs_gpu=True,
        ),
        Change(
            outermost.COMPILE,
            "rounding",
            "model = torch.compile(model)",
            ("elementwise-chains", "unfused-activation", "unfused-norm"),
            "compile",
        ),
        Change(
            outermost.GRAPHS,
            "rounding",
            'model = torch.compile(model, mode="reduce-overhead")',
            ("launch-bound", "python-between-operators"),
            "compile",
            needs_gpu=True,
        ),
        Change(
            outermost.LAYOUT,
            "rounding",
            "model = model.to(memory_format=torch.channels_last)",
            ("layout-conversions",),
        ),
        Change(
            switches.CUDNN_BENCHMARK,
            "rounding",
            "torch.backends.cudnn.benchmark = True",
            ("convolution-search",),
            needs_gpu=True,
        ),
        Change(
            switches.DETERMINISTIC_OFF,
            "rounding",
            "torch.use_deterministic_algorithms(False)",
            ("deterministic-algorithms",),
            needs_gpu=True,
        ),
        Change(
            switches.TF32,
            "other result",
            'torch.set_float32_matmul_precision("high")',
            ("tf32-off",),
            "products",
            needs_gpu=True,
        ),
        Change(
            outermost.AUTOCAST,
            "other result",
            "with torch.autocast(device.type, dtype=torch.bfloat16):\n    output = model(x)",
            ("fp32-products",),
            "products",
        ),
        Change(loader.BATCH, "other result", "DataLoader(…, batch_size=$batch)", ("small-batch",)),
    )
}
