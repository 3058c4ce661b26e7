"""Scenarios of the first set, each with one planted problem or none; a pair differs in one change."""

from __future__ import annotations

from sawtooth.sample_traces.scenario import NONE, Scenario, scenario
from sawtooth.sample_traces.sets.first import workloads as w
from sawtooth.sample_traces.sets.first.models import GptShape

GPT2 = GptShape(layers=12, width=768, heads=12, vocab=50304, seq=1024)
BASE = w.small(layers=3)
NARROW = w.small(width=256, heads=4, vocab=4096, seq=128)
LONG = w.small(layers=3, width=768, heads=12, vocab=8192, seq=1024)
ONE_WORKER = {"num_workers": 1, "prefetch_factor": 2, "side": 256, "pin_memory": True, "persistent_workers": True}
MANY_WORKERS = {**ONE_WORKER, "num_workers": 14}
SMALL_DEPTHS = (1, 1, 1, 1)  # Depths of a ResNet-14 with the blocks of ResNet-50.
SHRINKING = tuple(range(224, 96, -2))  # There are more sizes than the loop takes steps.
STACKS = {"with_stack": True, "with_modules": True}

# fmt: off
SCENARIOS: dict[str, Scenario] = {
    # These three are shipped with the app.
    "resnet_starved": scenario(
        "one loader worker: 768 JPEGs a step cost it over 0.7 s, the GPU needs less than 0.2 s",
        w.resnet, 768, source="jpeg", loader=ONE_WORKER, marks=True,
        fixed_by="resnet_fixed", change="num_workers 1 -> 14", active=5, warmup=5, timed_s=16, synced_steps=6, bundled=True,
    ),
    "resnet_fixed": scenario(
        NONE, w.resnet, 768, source="jpeg", loader=MANY_WORKERS, marks=True, active=5, warmup=5, timed_s=8, first_steps=10, bundled=True,
    ),
    "gpt": scenario(NONE, w.gpt, GPT2, 16, marks=True, active=5, timed_s=6, bundled=True),
    # Precision.
    "gpt_fp32": scenario(
        "fp32 matrix products with TF32 off: no tensor cores", w.gpt, BASE, 32, precision="fp32",
        fixed_by="gpt_tf32", change="allow_tf32 = True", also=(("gpt_small", "bf16 autocast"),),
    ),
    "gpt_tf32": scenario("TF32 only", w.gpt, BASE, 32, precision="tf32", fixed_by="gpt_small", change="bf16 autocast"),
    "gpt_small": scenario(NONE, w.gpt, BASE, 32),
    # The host reads values back.
    "gpt_reads": scenario(
        "every gradient's norm, the loss and isnan(loss) are read back to the host every step", w.gpt, BASE, 32, grad_norms=True,
        host_reads=True, fixed_by="gpt_no_reads", change="the same values stay on the GPU",
    ),
    "gpt_no_reads": scenario(NONE, w.gpt, BASE, 32, grad_norms=True),
    "gpt_reads_stack": scenario(
        "every gradient's norm, the loss and isnan(loss) are read back, recorded with Python stacks", w.gpt, w.small(layers=2), 32,
        grad_norms=True, host_reads=True, profiler=STACKS,
    ),
    "boolean_mask": scenario("a boolean mask every step: the host waits for its length", w.boolean_masks, 8192, 1024),
    # Copies.
    "copy_pageable": scenario(
        "116 MB of pageable images a step, copied while the host waits", w.resnet, 192, depths=SMALL_DEPTHS, source="pageable", non_blocking=False,
        fixed_by="copy_pinned", change="pin_memory and non_blocking=True",
    ),
    "copy_pinned": scenario(
        NONE, w.resnet, 192, depths=SMALL_DEPTHS, source="pinned", fixed_by="copy_prefetched", change="the next batch is copied on its own stream",
    ),
    "mask_from_cpu": scenario(
        "every block builds its attention mask on the CPU and copies it", w.gpt, w.small(layers=3, attention="math", mask_on="cpu", seq=1024), 8,
        fixed_by="mask_on_gpu", change="the mask stays on the GPU",
    ),
    "mask_on_gpu": scenario("attention as two matrix products and a softmax", w.gpt, w.small(layers=3, attention="math", seq=1024), 8),
    # Launches.
    "adam_single": scenario(
        "single-tensor AdamW: about ten kernels per parameter", w.gpt, NARROW, 16, optimizer="single",
        fixed_by="adam_fused", change="AdamW(fused=True)",
    ),
    "adam_fused": scenario("launch-bound: small kernels", w.gpt, NARROW, 16),
    "mlp_eager": scenario(
        "launch-bound: small kernels in eager mode", w.perceptron, 128, fixed_by="mlp_graph", change="one CUDA graph per step",
    ),
    "mlp_graph": scenario(NONE, w.perceptron, 128, graph=True),
    "python_host": scenario(
        "6 ms of pure Python in every block", w.gpt, w.small(layers=3, work_s=0.006), 32, fixed_by="gpt_small", change="no Python work between operators",
    ),
    # Alignment.
    "vocab_50257": scenario(
        "a vocabulary of 50257: the head's matrix products are misaligned", w.gpt, w.small(layers=2, vocab=50257), 32,
        fixed_by="vocab_50304", change="vocabulary padded to 50304",
    ),
    "vocab_50304": scenario(NONE, w.gpt, w.small(layers=2, vocab=50304), 32),
    "mlp_4093": scenario(
        "a hidden width of 4093: odd rows", w.perceptron, 16384, layers=6, inputs=1024, hidden=4093, norm=False,
        fixed_by="mlp_4096", change="width padded to 4096",
    ),
    "mlp_4096": scenario(NONE, w.perceptron, 16384, layers=6, inputs=1024, hidden=4096, norm=False),
    # Fusion and layout.
    "attention_math": scenario(
        "attention as two matrix products and a softmax", w.gpt, w.small(**{**vars(LONG), "attention": "math"}), 16,
        fixed_by="attention_sdpa", change="F.scaled_dot_product_attention",
    ),
    "attention_sdpa": scenario(NONE, w.gpt, LONG, 16),
    "norm_by_hand": scenario(
        "LayerNorm and GELU written as elementwise operators", w.gpt, w.small(layers=3, norm="by_hand"), 32,
        fixed_by="gpt_small", change="nn.LayerNorm and F.gelu",
    ),
    "channels_first": scenario(
        "bf16 convolutions in channels-first layout", w.resnet, 192, depths=SMALL_DEPTHS, channels_last=False,
        fixed_by="channels_last", change="memory_format=torch.channels_last",
    ),
    "channels_last": scenario(NONE, w.resnet, 192, depths=SMALL_DEPTHS),
    "gpt_compiled": scenario(NONE + " (torch.compile, warmed up)", w.gpt, BASE, 32, compiled=True, first_steps=8),
    # Work of a loop besides training.
    "checkpointing_io": scenario(
        "torch.save of model and optimizer every second step", w.gpt, BASE, 32, save_every=2,
        fixed_by="gpt_small", change="no checkpoint in the loop", timed_s=4, active=4,
    ),
    "empty_cache": scenario(
        "torch.cuda.empty_cache() every step", w.gpt, BASE, 32, empty_cache=True, fixed_by="gpt_small", change="no empty_cache",
    ),
    "recompiles": scenario(
        "torch.compile meets a new batch size every second step", w.perceptron, 2048, layers=4, norm=False, compiled=True,
        rows=tuple(2048 - 16 * index for index in range(60)), timed_s=2, min_steps=10, synced_steps=4, first_steps=3, warmup=2, active=4,
    ),
    "recompute": scenario(
        "gradient checkpointing: every block's forward runs twice", w.gpt, BASE, 32, recompute=True,
        fixed_by="gpt_small", change="no activation checkpointing",
    ),
    "memory_creep": scenario(
        "the logits of every step are kept: memory grows every step", w.gpt, w.small(layers=2, seq=256), 4, keep_logits=True,
        profiler={"profile_memory": True}, timed_s=2,
    ),
    "gpt_stack_memory": scenario(
        NONE, w.gpt, w.small(layers=2), 32, profiler={**STACKS, "profile_memory": True},
    ),
    "loader_inline": scenario(
        "num_workers=0: 64 JPEGs decoded in the training process", w.resnet, 64, depths=SMALL_DEPTHS, source="jpeg",
        loader={"num_workers": 0, "side": 256}, fixed_by="loader_workers", change="num_workers 0 -> 14, pinned", synced_steps=10,
    ),
    "loader_workers": scenario(NONE, w.resnet, 64, depths=SMALL_DEPTHS, source="jpeg", loader=MANY_WORKERS, first_steps=10, warmup=5),
    "small_batch": scenario(
        "batch 2: the host cannot keep up", w.gpt, BASE, 2, fixed_by="gpt_small", change="batch 2 -> 32",
    ),
    "eval_with_grad": scenario(
        "evaluation that records the graph for a backward pass that never comes", w.resnet, 192, depths=SMALL_DEPTHS, train=False,
        profiler={"profile_memory": True}, fixed_by="eval_without_grad", change="torch.no_grad()",
    ),
    "eval_without_grad": scenario(NONE, w.resnet, 192, depths=SMALL_DEPTHS, train=False, grad=False, profiler={"profile_memory": True}),
    "cudnn_heuristics": scenario(
        "none: cudnn.benchmark is off, which makes no difference to these convolutions", w.resnet, 192, depths=SMALL_DEPTHS, benchmark=False, fixed_by="channels_last", change="cudnn.benchmark = True",
    ),
    "copy_prefetched": scenario(NONE + " (the next batch is copied on its own stream)", w.resnet, 192, depths=SMALL_DEPTHS, source="pinned", prefetch=True),
    "adam_foreach": scenario(
        "multi-tensor AdamW instead of the fused one", w.gpt, BASE, 32, optimizer="foreach", fixed_by="gpt_small", change="AdamW(fused=True)",
    ),
    "zeroed_gradients": scenario(
        "gradients are filled with zeros", w.gpt, BASE, 32, set_to_none=False, fixed_by="gpt_small", change="zero_grad(set_to_none=True)",
    ),
    "collected_garbage": scenario(
        "gc.collect() every step, over 400,000 live objects", w.gpt, BASE, 32, collect_garbage=True,
        fixed_by="gpt_small", change="no gc.collect() in the step", profiler={"with_stack": True},
    ),
    "checkpoint_unseen": scenario(
        "torch.save every 25th step: most profiles of four steps miss it, the telemetry does not", w.gpt, w.small(layers=2), 32,
        save_every=25, timed_s=6,
    ),
    "gpt_no_steps": scenario(NONE + " (no schedule: the trace names no steps)", w.gpt, w.small(layers=2), 32, mark_steps=False),
    "mm_fp8": scenario(NONE + ": 20 FP8 matrix products of 8192 cubed", w.fp8_products, 8192, 20),
    # Loader options.
    "loader_restarts": scenario(
        "each epoch of six batches starts the loader's workers anew", w.resnet, 64, depths=SMALL_DEPTHS, source="jpeg",
        loader={**MANY_WORKERS, "num_workers": 6, "persistent_workers": False, "epoch": 6}, profiler={"with_stack": True},
        fixed_by="loader_keeps_workers", change="persistent_workers=True", first_steps=8, active=7, synced_steps=8,
    ),
    "loader_keeps_workers": scenario(
        NONE + " (epochs of six batches, each of which begins with an empty queue)", w.resnet, 64, depths=SMALL_DEPTHS, source="jpeg",
        loader={**MANY_WORKERS, "num_workers": 6, "epoch": 6}, profiler={"with_stack": True}, first_steps=8, active=7, synced_steps=8,
    ),
    "loader_few_workers": scenario(
        "four workers are too few", w.resnet, 64, depths=SMALL_DEPTHS,
        source="jpeg", loader={**MANY_WORKERS, "num_workers": 4, "prefetch_factor": 8}, fixed_by="loader_workers",
        change="num_workers 4 -> 14", first_steps=60, warmup=2, timed_s=6, min_steps=200,
    ),
    # Costs that occur now and then, and costs that do not grow with the batch.
    "slow_every_fourth": scenario(
        "30 ms of Python before every fourth step", w.gpt, BASE, 32, late_s=0.030, late_every=4, active=8, fixed_by="gpt_small",
        change="no Python work in the loop",
    ),
    "optimizer_heavy": scenario(
        "an optimizer step over 440 million parameters for every 512 tokens", w.gpt, w.small(layers=2, width=4096, heads=32, vocab=8192, seq=256), 2,
    ),
    "memory_full": scenario(
        "something else keeps nine tenths of the GPU's memory", w.gpt, w.small(layers=2), 32, fill_memory=0.90,
        profiler={"profile_memory": True},
    ),
    # Convolution algorithms.
    "conv_searches": scenario(
        "cudnn.benchmark with another image size every step: the search for algorithms begins anew each time", w.resnet, 64, depths=(1, 1),
        sides=SHRINKING, fixed_by="conv_searches_off", change="cudnn.benchmark = False", timed_s=0, min_steps=8, synced_steps=4, first_steps=3,
    ),
    "conv_searches_off": scenario(
        NONE + " (another image size every step)", w.resnet, 64, depths=(1, 1), benchmark=False, sides=SHRINKING, timed_s=0, min_steps=8,
        synced_steps=4, first_steps=3,
    ),
    "conv_tf32_heuristics": scenario(
        "cudnn.benchmark is off: the algorithms of TF32 convolutions come from a heuristic", w.resnet, 96, depths=SMALL_DEPTHS, benchmark=False,
        precision="tf32", channels_last=False, fixed_by="conv_tf32_search", change="cudnn.benchmark = True",
    ),
    "conv_tf32_search": scenario(NONE + " (cudnn.benchmark is on)", w.resnet, 96, depths=SMALL_DEPTHS, precision="tf32", channels_last=False),
    # Two GPUs with one process each; recorded only on machines with two GPUs.
    "reduced_after": scenario(
        "gradients are averaged after the backward pass, so nothing overlaps it", w.gpt, w.small(layers=4, width=2048, heads=16, vocab=8192, seq=512), 4,
        gpus=2, ddp=False, reduce_after=True, timed_s=0, min_steps=100, fixed_by="reduced_within", change="DistributedDataParallel",
    ),
    "reduced_within": scenario(
        NONE, w.gpt, w.small(layers=4, width=2048, heads=16, vocab=8192, seq=512), 4, gpus=2, timed_s=0, min_steps=100,
    ),
    "ddp_straggler": scenario(
        "rank 1's batch comes 25 ms late every step", w.gpt, w.small(), 32, gpus=2, timed_s=0, min_steps=100,
        fixed_by="ddp_balanced", change="no rank is late",
    ),
    "ddp_balanced": scenario(NONE, w.gpt, w.small(), 32, gpus=2, timed_s=0, min_steps=100),
}
LATE_S = {"ddp_straggler": {1: 0.025}}  # Seconds by which a rank's batch is late.
# fmt: on
