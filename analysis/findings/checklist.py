"""Techniques of PyTorch's tuning guide and NVIDIA's performance guide, with their state in a run.

A technique lists the rules that find runs without it. If these rules find nothing, names in the trace show whether the run uses the
technique (``done``), and whether the run has work that the technique improves (``needs``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words

Status = Literal["gains", "found", "done", "nothing", "not applicable", "not checked"]
CONVOLUTION, ATTENTION, COMPILED = (
    "aten::.*convolution",
    "attention|fmha|flash|aten::(_softmax|bmm|baddbmm)$",
    "Torch-Compiled Region",
)
BACKWARD = "^autograd::engine|Backward"
MIN_STEPS = 20  # A shorter profile misses many events that occur in every tenth step.
MAX_NAME_LENGTH = 60  # Longest name that is shown whole, in characters. Kernel names have hundreds.
PRODUCTS = "aten::.*(mm|matmul|linear|conv)|gemm"
PRODUCTS_16_BIT = "bf16|bfloat16|f16|half|_h_|s16816|nvjet_.*(tst|hsh|bsb)"
COLLECTIVES = "nccl|rccl"
_ABBREVIATION = re.compile(r"\b(tf32|fp8|fp32|cpu|gpu|fsdp)\b")


@dataclass(frozen=True)
class Technique:
    """One technique, with the patterns and rules that show its state.

    The patterns are regular expressions for names in the trace:

    - ``done``: names that show that the run uses the technique.
    - ``needs``: names of the work that the technique improves. ``works_on`` describes this work in words.
    - ``undone``: names that show that the run does not use the technique although ``done`` matches. For example, cuDNN also calls
      its channels_last kernels after converting a layout. ``why_not_advised`` says why the rules then find nothing.

    ``why_not_shown`` says why no recording can show the state. ``rare_event`` is what a short profile may miss. ``other_profile``
    says which other work must be profiled, because training steps do not contain it.
    """

    title: str
    rules: tuple[str, ...] = ()
    done: str | None = None
    needs: str | None = None
    why_not_shown: str | None = None
    undone: str | None = None
    why_not_advised: str = ""
    rare_event: str | None = None
    other_profile: str | None = None
    works_on: str = ""


TECHNIQUES: tuple[Technique, ...] = (
    Technique("A data loader that keeps up",
              ("data-loader-starves-gpu", "batches-in-bursts", "prefetch-queue-hid-the-loader", "workers-start-again", "slow-first-read"), "_MultiProcessingDataLoaderIter", "DataLoader", works_on="DataLoader"),
    Technique("No more workers than cores, no swap", ("workers-beyond-cores", "host-swaps")),
    Technique("Pinned memory and copies that do not block", ("pageable-copies", "blocking-copies", "copies-not-overlapped"), "Pinned -> Device", "Memcpy HtoD", works_on="copies to the GPU"),
    Technique("Few, large copies", ("small-copies",), None, "Memcpy HtoD", works_on="copies to the GPU"),
    Technique("A link to the host that is not saturated", ("host-link-saturated",), None, "Memcpy (HtoD|DtoH)", works_on="copies between host and GPU"),
    Technique("Tensors made on the GPU", ("tensors-made-on-cpu",)),
    Technique("No waits for GPU values", ("host-waits-for-gpu", "boolean-mask-waits")),
    Technique("Mixed precision", ("fp32-products",), PRODUCTS_16_BIT, PRODUCTS, works_on="matrix products"),
    Technique("Few casts between dtypes", ("casts",), None, "aten::_to_copy", works_on="casts between dtypes"),
    Technique("TF32 where FP32 is needed", ("tf32-off",), "tf32", PRODUCTS, works_on="matrix products"),
    Technique("FP8 products", ("fp8-products",), "e4m3|e5m2|fp8", PRODUCTS_16_BIT, works_on="16-bit products"),
    Technique("Sizes that fit tensor cores", ("misaligned-dimensions",), None, PRODUCTS, works_on="matrix products"),
    Technique("channels_last for convolutions", ("layout-conversions",), "nhwc", CONVOLUTION, undone="(?i)nchwToNhwc",
              why_not_advised="with few channels, or with group norms in between, channels_last may not be faster", works_on="convolutions"),
    Technique("cudnn.benchmark, decided once", ("convolution-search",), None, CONVOLUTION, works_on="convolutions"),
    Technique("No bias before a batch norm", ("bias-before-norm",), None, "aten::.*batch_norm", works_on="batch norms"),
    Technique("Pointwise operations fused", ("elementwise-chains", "unfused-activation", "unfused-norm", "clipping-by-hand", "norms-one-by-one", "weights-averaged-one-by-one", "loss-head"), "^triton_"),
    Technique("No loops over rows, samples, experts or cells in Python", ("loop-indexing", "samples-one-by-one", "samples-prepared-alone", "expert-loops", "recurrent-cells")),
    Technique("No breaks of compiled graphs, no recompilation", ("graph-breaks", "recompilation"), None, COMPILED, works_on="compiled code"),
    Technique("Products chosen by timing them (max-autotune)", ("max-autotune",), "^triton_(tem|mm|bmm)", COMPILED, works_on="compiled code"),
    Technique("torch.compile instead of torch.jit", ("scripted-code",)),
    Technique("No other host work between launches", ("python-between-operators", "operators-on-cpu")),
    Technique("CUDA graphs for many short kernels", ("launch-bound", "graph-capture"), "cudaGraphLaunch|cuGraphLaunch"),
    Technique("Fused attention", ("unfused-attention", "heads-one-by-one", "attention-fallback"), "scaled_dot_product_(flash|efficient|cudnn|fused)|flash_(fwd|bwd)|fmha", ATTENTION, works_on="attention"),
    Technique("Fused optimizer", ("optimizer-not-fused", "optimizer-foreach", "optimizer-share"), "_fused_(adam|sgd|adagrad)|FusedAdam",
              "Optimizer\\.step|_foreach_|_fused_|addcdiv", works_on="optimizer steps"),
    Technique("Gradients set to None", ("zeroed-gradients",), None, "Optimizer\\.zero_grad", works_on="calls of zero_grad"),
    Technique("Debugging off (anomaly detection)", ("anomaly-detection",), None, "Backward", works_on="backward passes"),
    Technique("Deterministic algorithms only where they are needed", ("deterministic-algorithms",)),
    Technique("No gradients for parameters that are not trained", ("unused-gradients",), None, "AccumulateGrad", works_on="gradients of parameters"),
    Technique("No graph in evaluation", ("evaluation-records-graph",), other_profile="the profile contains only training steps; also profile an evaluation"),
    Technique("A batch that fills the GPU", ("small-batch", "memory-headroom", "accumulation-without-need", "acting-in-the-loop")),
    Technique("Batches of similar lengths", ("shapes-vary", "plans-for-new-shapes"), rare_event="batches of other lengths"),
    Technique("Activation checkpointing only where memory needs it", ("recomputation", "memory-near-limit"), None, "Checkpoint|recompute", works_on="activation checkpointing"),
    Technique("Sparse gradients of large embedding tables", ("dense-table-gradients",), None, "aten::_?embedding(_bag)?_dense_backward", works_on="dense gradients of embedding tables"),
    Technique("One lookup for many embedding tables", ("tables-one-by-one",), None, "aten::_?embedding(_bag)?$", works_on="lookups in embedding tables"),
    Technique("No allocation in the step", ("allocator-churn", "memory-creep")),
    Technique("Garbage collection out of the step", ("garbage-collection",)),
    Technique("Checkpoints out of the loop", ("checkpoint-in-the-loop", "periodic-stalls"), rare_event="a checkpoint"),
    Technique("Communication that overlaps with computation", ("exposed-communication", "small-collectives", "gradients-reduced-after", "fsdp-prefetch", "fsdp-reshard"), None, COLLECTIVES, works_on="communication between GPUs"),
    Technique("Accumulation without synchronization (no_sync)", ("accumulation-syncs",), None, COLLECTIVES, works_on="communication between GPUs"),
    Technique("Ranks with equal work", ("straggling-rank", "pipeline-bubble"), None, COLLECTIVES, works_on="communication between GPUs"),
    Technique("Parameters that are all used (find_unused_parameters off)", ("unused-parameter-search",), None, "DistributedDataParallel", works_on="DistributedDataParallel"),
    Technique("Full clocks", ("power-cap", "thermal-slowdown")),
    Technique("Processes bound to the GPU's cores (NUMA)", why_not_shown="neither a trace nor telemetry shows on which cores a process runs"),
    Technique("A profile that shows the training as it runs", ("profile-not-representative", "profiler-distorts", "steps-not-marked")),
)  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """State of a technique in a run, from a finding or else from names in the trace.

    ``sentence`` is the finding's title or the reason for the state. ``rule`` is the finding's rule, or the first rule that was
    not checked.
    """

    technique: Technique
    status: Status
    sentence: str
    rule: str | None = None
    finding: Finding | None = None

    @property
    def gain_ms(self) -> float | None:
        """Time that the change saves per step, ms; None if no gain is predicted."""
        return self.finding.gain_ms if self.finding is not None and self.finding.claims == "gain" else None


def checklist(run: RunResult, recording: Recording) -> tuple[Checked, ...]:
    """Return every technique with its state in ``run``, one entry per finding.

    ``recording`` is the recording of the slowest rank.
    """
    return tuple(checked for technique in TECHNIQUES for checked in _entries_of(technique, run, recording))


def _entries_of(technique: Technique, run: RunResult, recording: Recording) -> tuple[Checked, ...]:
    findings = [finding for finding in run.findings if finding.rule in technique.rules]
    if not findings:
        return (_without_findings(technique, run, recording),)
    return tuple(
        Checked(technique, "gains" if finding.claims == "gain" else "found", finding.title, finding.rule, finding)
        for finding in findings
    )


def _without_findings(technique: Technique, run: RunResult, recording: Recording) -> Checked:
    not_checked = {note.rule: note.because for note in run.not_checked if note.rule in technique.rules}
    undone = technique.undone is not None and _shortest_name(recording, technique.undone) is not None
    if technique.done and not undone and (name := _shortest_name(recording, technique.done)):
        return Checked(technique, "done", f"the trace has {short_name(name)}{_unchecked_clause(not_checked)}")
    needed = _shortest_name(recording, technique.needs) if technique.needs else None
    if technique.needs and not needed:
        return Checked(technique, "not applicable", f"the trace has no {technique.works_on}")
    if technique.why_not_shown is not None:
        return Checked(technique, "not checked", technique.why_not_shown)
    if not_checked:
        qualifier = "" if len(not_checked) == len(technique.rules) else "; the other checks found nothing"
        return Checked(technique, "not checked", f"{next(iter(not_checked.values()))}{qualifier}", next(iter(not_checked)))
    if (unseen := _why_unseen(technique, run, recording)) is not None:
        return Checked(technique, "not checked", unseen, technique.rules[0])
    if undone and technique.undone is not None and (ms := _ms_per_step(recording, technique.undone, run)) is not None:
        name = short_name(_shortest_name(recording, technique.undone) or "")
        return Checked(technique, "nothing", f"{name} takes {in_words(ms)} of each step; {technique.why_not_advised}")
    looked_at = f"the trace has {short_name(needed)}; " if needed else ""
    looked_for = ", ".join(
        _ABBREVIATION.sub(lambda short: short[0].upper(), rule.replace("-", " ")) for rule in technique.rules
    )
    return Checked(technique, "nothing", f"{looked_at}looked for {looked_for} and found none")


def short_name(name: str) -> str:
    """Return a name of the trace for a sentence; of a C++ signature, only the function's name."""
    if "<" in name and "::" in name:
        name = name.partition("<")[0].rsplit("::", 1)[-1].split()[-1]
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def _unchecked_clause(not_checked: dict[str, str]) -> str:
    return f"; some of its rules cannot be checked: {next(iter(not_checked.values()))}" if not_checked else ""


def _why_unseen(technique: Technique, run: RunResult, recording: Recording) -> str | None:
    """Return why the recording cannot show the technique, and what to record; None if it can."""
    steps = len(run.lead.counted) if run.lead is not None else 0
    if technique.other_profile is not None and _shortest_name(recording, BACKWARD) is not None:
        return technique.other_profile
    if technique.rare_event is not None and steps < MIN_STEPS:
        return f"the {steps} profiled steps show no {technique.rare_event.removeprefix('a ')}; profile {MIN_STEPS} or more (`sawtooth run --steps {MIN_STEPS}`)"
    return None


def _ms_per_step(recording: Recording, pattern: str, run: RunResult) -> float | None:
    """Return the ms per counted step that kernels with matching names take on the lead device.

    None if there are no such kernels.
    """
    if run.lead is None or not len(run.lead.counted):
        return None
    rows = recording.rows(
        "SELECT sum(dur_ns) FROM step_gpu_ops WHERE device = ? AND counted AND name_id IN (SELECT name_id FROM names WHERE regexp_matches(name, ?))",
        [run.lead.device, pattern],
    )
    return float(rows[0][0]) / 1e6 / len(run.lead.counted) if rows[0][0] else None


def _shortest_name(recording: Recording, pattern: str) -> str | None:
    """Return the shortest matching name in the trace, preferably not a mangled one; None if none matches."""
    rows = recording.rows(
        "SELECT name FROM names WHERE regexp_matches(name, ?) ORDER BY starts_with(name, '_Z'), length(name), name LIMIT 1",
        [pattern],
    )
    return str(rows[0][0]) if rows else None
