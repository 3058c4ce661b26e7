"""The techniques of PyTorch's tuning guide and NVIDIA's performance guide, each with what a run's data say of it.

A technique names the rules that look for its lack. Where none of them speaks, names in the trace tell whether it is in use (``done``) or has
nothing to work on (``needs``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.store.library import Recording

Status = Literal["brings", "found", "done", "nothing", "not applicable", "not checked"]
PYTORCH = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
NVIDIA = "https://docs.nvidia.com/deeplearning/performance/index.html"
CONVOLUTION, ATTENTION, COMPILED = (
    "aten::.*convolution",
    "attention|fmha|flash|aten::(_softmax|bmm|baddbmm)$",
    "Torch-Compiled Region",
)
NOTHING_TO_WORK_ON = "the trace has nothing that it works on"
BACKWARD = "^autograd::engine|Backward"
ENOUGH_STEPS = 20  # a profile of fewer misses most of what happens every hundredth step, and much of what happens every tenth
NAME_SHOWN = 60  # characters: names of kernels have hundreds
PRODUCTS = "aten::.*(mm|matmul|linear|conv)|gemm"
HALF = "bf16|bfloat16|f16|half|_h_|s16816|nvjet_.*(tst|hsh|bsb)"  # kernels with 16-bit products
RANKS = "nccl|rccl"


@dataclass(frozen=True)
class Technique:
    """``done`` and ``needs`` are regular expressions over the names in the trace: of what shows that it is in use, and of what it works on.

    ``undone`` shows that it is not in use although ``done`` is there: cuDNN calls its own kernels after it has converted a layout. ``why_not`` says
    why nothing recorded can tell. ``rare`` is what happens once in many steps: a short profile without it says nothing of the training.
    ``apart`` is what a profile of training steps cannot hold, and what to record for it.
    """

    title: str
    guide: str
    rules: tuple[str, ...] = ()
    done: str | None = None
    needs: str | None = None
    why_not: str | None = None
    undone: str | None = None
    rare: str | None = None
    apart: str | None = None


TECHNIQUES: tuple[Technique, ...] = (
    Technique("A data loader that keeps up", PYTORCH,
              ("data-loader-starves-gpu", "batches-in-bursts", "prefetch-queue-hid-the-loader", "workers-start-again"), "_MultiProcessingDataLoaderIter", "DataLoader"),
    Technique("No more workers than cores, no swap", NVIDIA, ("workers-beyond-cores", "host-swaps")),
    Technique("Pinned memory and copies that do not block", PYTORCH, ("pageable-copies", "blocking-copies", "copies-not-overlapped"), "Pinned -> Device", "Memcpy HtoD"),
    Technique("Few, large copies", NVIDIA, ("small-copies",), None, "Memcpy HtoD"),
    Technique("A link to the host with room to spare", NVIDIA, ("host-link-saturated",), None, "Memcpy (HtoD|DtoH)"),
    Technique("Tensors made on the GPU", PYTORCH, ("tensors-made-on-cpu",)),
    Technique("No waits for GPU values", PYTORCH, ("host-waits-for-gpu", "boolean-mask-waits")),
    Technique("Mixed precision", NVIDIA, ("fp32-products",), HALF, PRODUCTS),
    Technique("Few casts between dtypes", NVIDIA, ("casts",), None, "aten::_to_copy"),
    Technique("TF32 where FP32 is needed", NVIDIA, ("tf32-off",), "tf32", PRODUCTS),
    Technique("FP8 products", NVIDIA, ("fp8-products",), "e4m3|e5m2|fp8", HALF),
    Technique("Sizes that fit tensor cores", NVIDIA, ("misaligned-dimensions",), None, PRODUCTS),
    Technique("channels_last for convolutions", PYTORCH, ("layout-conversions",), "nhwc", CONVOLUTION, undone="(?i)nchwToNhwc"),
    Technique("cudnn.benchmark, decided once", PYTORCH, ("convolution-search",), None, CONVOLUTION),
    Technique("No bias before a batch norm", PYTORCH, ("bias-before-norm",), None, "aten::.*batch_norm"),
    Technique("Pointwise operations fused", PYTORCH, ("elementwise-chains", "unfused-activation", "unfused-norm", "clipping-by-hand", "loss-head"), "^triton_"),
    Technique("No loops over rows, samples, experts or cells in Python", NVIDIA, ("loop-indexing", "samples-one-by-one", "expert-loops", "recurrent-cells")),
    Technique("No breaks of compiled graphs, no recompilation", PYTORCH, ("graph-breaks", "recompilation"), None, COMPILED),
    Technique("Products chosen by timing them (max-autotune)", PYTORCH, ("max-autotune",), "^triton_(tem|mm|bmm)", COMPILED),
    Technique("torch.compile instead of torch.jit", PYTORCH, ("scripted-code",)),
    Technique("No work of the host's own between launches", NVIDIA, ("python-between-operators", "operators-on-cpu")),
    Technique("CUDA graphs for many short kernels", PYTORCH, ("launch-bound", "graph-capture"), "cudaGraphLaunch|cuGraphLaunch"),
    Technique("Fused attention", PYTORCH, ("unfused-attention", "attention-fallback"), "scaled_dot_product_(flash|efficient|cudnn|fused)|flash_(fwd|bwd)|fmha", ATTENTION),
    Technique("Fused optimizer", PYTORCH, ("optimizer-not-fused", "optimizer-foreach", "optimizer-share"), "_fused_(adam|sgd|adagrad)|FusedAdam",
              "Optimizer\\.step|_foreach_|_fused_|addcdiv"),
    Technique("Gradients set to None", PYTORCH, ("zeroed-gradients",), None, "Optimizer\\.zero_grad"),
    Technique("Debugging off (anomaly detection)", PYTORCH, ("anomaly-detection",), None, "Backward"),
    Technique("Deterministic algorithms only where they are needed", PYTORCH, ("deterministic-algorithms",)),
    Technique("No graph in evaluation", PYTORCH, ("evaluation-records-graph",), apart="the profile holds training steps; profile one evaluation too"),
    Technique("A batch that fills the GPU", NVIDIA, ("small-batch", "memory-headroom")),
    Technique("Batches of like lengths, memory allocated for the longest", PYTORCH, ("shapes-vary",), rare="batches of other lengths"),
    Technique("Activation checkpointing only where memory needs it", PYTORCH, ("recomputation", "memory-near-limit"), None, "Checkpoint|recompute"),
    Technique("No allocation in the step", PYTORCH, ("allocator-churn", "memory-creep")),
    Technique("Garbage collection out of the step", PYTORCH, ("garbage-collection",)),
    Technique("Checkpoints out of the loop", PYTORCH, ("checkpoint-in-the-loop", "periodic-stalls"), rare="a checkpoint"),
    Technique("Communication beside computation", PYTORCH, ("exposed-communication", "small-collectives", "gradients-reduced-after", "fsdp-prefetch", "fsdp-reshard"), None, RANKS),
    Technique("Accumulation without synchronization (no_sync)", PYTORCH, ("accumulation-syncs",), None, RANKS),
    Technique("Ranks with equal work", PYTORCH, ("straggling-rank", "pipeline-bubble"), None, RANKS),
    Technique("Parameters that are all used (find_unused_parameters off)", PYTORCH, needs=RANKS, why_not="a trace does not tell how the model was wrapped"),
    Technique("Full clocks", NVIDIA, ("power-cap", "thermal-slowdown")),
    Technique("Processes bound to the GPU's cores (NUMA)", NVIDIA, why_not="neither a trace nor telemetry says on which cores a process runs"),
)  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """What a run says of a technique. ``sentence`` is the finding's title or the reason; ``gain_ms`` a step, only where a gain is predicted.

    ``leads``: it is the finding that the run's advice begins with.
    """

    technique: Technique
    status: Status
    sentence: str
    rule: str | None = None
    gain_ms: float | None = None
    leads: bool = False


def checklist(run: RunResult, recording: Recording, first: Finding | None = None) -> tuple[Checked, ...]:
    """Return every technique with what ``run`` says of it; ``recording`` is that of its slowest rank.

    ``first`` is the finding that the run's advice begins with: its technique speaks of it, and leads.
    """
    return tuple(_checked(technique, run, recording, first) for technique in TECHNIQUES)


def _checked(technique: Technique, run: RunResult, recording: Recording, first: Finding | None) -> Checked:
    findings = [finding for finding in run.findings if finding.rule in technique.rules]
    if findings:
        most = max(findings, key=lambda finding: (finding is first, finding.claims == "gain", finding.gain_ms))
        return _by_finding(technique, most, leads=most is first)
    lacking = {left.rule: left.because for left in run.not_checked if left.rule in technique.rules}
    undone = technique.undone is not None and _name(recording, technique.undone) is not None
    if technique.done and not undone and (name := _name(recording, technique.done)):
        return Checked(technique, "done", f"the trace has {name[:NAME_SHOWN]}{_in_part(lacking)}")
    if technique.needs and not _name(recording, technique.needs):
        return Checked(technique, "not applicable", NOTHING_TO_WORK_ON)
    if technique.why_not is not None:
        return Checked(technique, "not checked", technique.why_not)
    if lacking:
        seen = "" if len(lacking) == len(technique.rules) else "; what can be seen shows nothing"
        return Checked(technique, "not checked", f"{next(iter(lacking.values()))}{seen}", next(iter(lacking)))
    if (unseen := _unseen(technique, run, recording)) is not None:
        return Checked(technique, "not checked", unseen, technique.rules[0])
    return Checked(technique, "nothing", "looked for and not there")


def _in_part(lacking: dict[str, str]) -> str:
    return f"; the rest cannot be seen: {next(iter(lacking.values()))}" if lacking else ""


def _unseen(technique: Technique, run: RunResult, recording: Recording) -> str | None:
    """Return why the recording cannot hold what the technique is about, with what to record; None where it can."""
    steps = len(run.lead.counted) if run.lead is not None else 0
    if technique.apart is not None and _name(recording, BACKWARD) is not None:
        return technique.apart
    if technique.rare is not None and steps < ENOUGH_STEPS:
        return f"the {steps} profiled steps hold no sign of {technique.rare}; profile {ENOUGH_STEPS} or more (`sawtooth run --steps {ENOUGH_STEPS}`)"
    return None


def _by_finding(technique: Technique, finding: Finding, *, leads: bool) -> Checked:
    gains = finding.claims == "gain"
    gain_ms = finding.gain_ms if gains else None
    return Checked(technique, "brings" if gains else "found", finding.title, finding.rule, gain_ms, leads)


def _name(recording: Recording, pattern: str) -> str | None:
    """Return the first name in the trace that matches, None where none does."""
    rows = recording.rows("SELECT min(name) FROM names WHERE regexp_matches(name, ?)", [pattern])
    return str(rows[0][0]) if rows[0][0] is not None else None
