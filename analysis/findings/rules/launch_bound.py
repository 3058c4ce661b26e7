"""The host cannot launch kernels fast enough.

What it checks
    Idle time in which the launch queue is empty while the host is inside operators or launch calls (cause ``launch_bound``), estimated
    for the run without the profiler, since profiling itself slows the host.
Why it costs time
    Each operator costs the host 5 to 20 µs; kernels shorter than that finish before the next one arrives.
What to do
    Launch less often: ``torch.compile(mode="reduce-overhead")`` or a CUDA graph replays the whole step with one launch; a larger batch gives
    each launch more work; fused and foreach optimizers launch a few kernels where single-tensor ones launch thousands.
When it is wrong
    torch.compile stops at nn.LSTM, nn.GRU and nn.RNN: their step is captured by hand. With a batch that grows at no cost, batch size is the better change. Graphs need static shapes and no synchronization inside: where shapes change,
    pad to a few lengths and capture one graph each. They hold no step of
    ``FullyShardedDataParallel``: there, and where a graph cannot be captured, compile block by block.
References
    https://github.com/pytorch/pytorch/issues/127225 (FullyShardedDataParallel)
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs and https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.loading import hidden_time, loader_may_limit
from sawtooth.analysis.findings.queries.plan_builds import excess_ms, plan_builds
from sawtooth.analysis.findings.queries.reads import MASK_OPERATORS, waiting_calls
from sawtooth.analysis.findings.queries.recurrent import packs_sequences, recurrent_layer
from sawtooth.analysis.findings.queries.sampled import idle_by_telemetry_ms
from sawtooth.analysis.findings.queries.shapes import unlike_steps
from sawtooth.analysis.findings.rule import WARNING_SHARE, Rule, RuleContext, severity_of
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import CodeChange, Confidence, Explains, Finding, Severity
from sawtooth.analysis.units import in_number, in_words

WORTH_NAMING = 0.05  # a graph needs static shapes and care: not worth it for less than 5 % of the step
WAITS_FIRST = 0.01  # as the rule of waits names them: launches that lag at most twice what waits cost may lag because of them
PYTHON_SHARE = 0.1  # of the step
SHORT_KERNEL_NS = 10_000  # an operator costs the host about 10 µs: shorter kernels cannot hide it

LOADS_CODE = 0.05  # of the step: what the first launches of a run take says nothing of what the later ones do

FEWEST_TOKENS = 4  # of a step: fewer say little of what a token takes
EVEN_SHARE = 0.9  # of the tokens must hold as many kernels as most do: the last one may end the text
FEWEST_KERNELS = 5  # of a token: fewer are a loop of calls

BY_HAND = CodeChange(
    "PyTorch",
    "for x, y in loader:\n    train_step(x, y)",
    "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    train_step(static_x, static_y)\n"
    "for x, y in loader:\n    static_x.copy_(x, non_blocking=True); static_y.copy_(y, non_blocking=True)\n    graph.replay()",
)
CHANGES = (
    CodeChange(
        "PyTorch", "model = Net().cuda()", 'model = torch.compile(Net().cuda(), mode="reduce-overhead")   # CUDA graphs inside'
    ),
    BY_HAND,
    CodeChange("Lightning", "model = LitNet()", 'model = torch.compile(LitNet(), mode="reduce-overhead")'),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        'TrainingArguments(..., torch_compile=True, torch_compile_mode="reduce-overhead")',
    ),
)


LENGTHS = CodeChange(
    "PyTorch",
    "for x, y in loader:\n    train_step(x, y)",
    "for x, y in loader:   # x padded to one of a few lengths\n    graph, static_x, static_y = graphs[x.shape]   # captured once for each\n"
    "    static_x.copy_(x, non_blocking=True); static_y.copy_(y, non_blocking=True)\n    graph.replay()",
)
SHARDED_CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in model.blocks:\n    wrap(block)",
        "for block in model.blocks:\n    block.compile()   # fewer, larger kernels; the host gathers weights between the blocks as before\n    wrap(block)",
    ),
)
SHARDED = r"^FullyShardedDataParallel\."  # how the older FSDP's annotations begin; fully_shard's are called FSDP::

STEP_FIX = "Launch the step as one CUDA graph, by hand or with torch.compile(mode='reduce-overhead'); or give each launch more work with a larger batch."
TOKEN_FIX = "Keep keys and values in a cache of one size and launch each token as one CUDA graph, by hand or with torch.compile(mode='reduce-overhead')."
BY_HAND_FIX = "Launch the step as one CUDA graph, captured by hand: torch.compile stops at {layer}, which cuDNN runs. Or give each launch more work with a larger batch."
PACKED_RISK = " Packed sequences are of other lengths in each batch: pad them to one length first."
CAPTURED_NOTE = "Each step launched as one graph; kernels keep their durations."
STEP_NOTE = "Each step launched as one graph; kernels keep their durations. Compiling would also fuse some of them."
SHARDED_FIX = (
    "Compile the model block by block, so that it launches fewer kernels; or give each launch more work with a larger batch."
)
GRAPH_RISK = "Graphs need static shapes and addresses; anything that reads a GPU value inside the step must move out."
LENGTHS_FIX = (
    "Pad to a few lengths, and launch the step of each as one CUDA graph; or give each launch more work with a larger batch."
)
LENGTHS_NOTE = "Not predicted: shapes change from step to step, and a CUDA graph holds one shape. How many lengths will do, and how much work padding adds, nothing tells."
SHARDED_NOTE = (
    "Not predicted: how many launches compiling takes away. A CUDA graph does not hold a step of FullyShardedDataParallel."
)
AFTER_WAITS = "Not predicted: the host's waits come first. They cost it its head start, and a graph cannot hold them."
AFTER_LOADER = "Not predicted: the run waits for its loader's workers, which the profiled steps hide. Launching sooner brings nothing before they give more."
AFTER_LOADING = (
    "Not predicted: code was compiled or loaded in these steps, so they say little of later ones. Profile after the warm-up."
)
TOKEN_NOTE = "Each token launched as one graph, the prompt read as before; kernels keep their durations, and the host still waits after each token where it did."


@dataclass(frozen=True)
class Generation:
    """The tokens of steps that each read a prompt and then make one token after the other.

    ``first`` holds the gpu_op_ids that begin each token, of all counted steps. ``per_step`` is how many tokens a step has, on average,
    ``prompt_share`` which part of the profiled steps' time lies before the first token."""

    first: tuple[int, ...]
    per_step: float
    prompt_share: float


def _generation(context: RuleContext) -> Generation | None:
    """Return the tokens of a run whose counted steps are generations, None for others: those with a backward pass, or without such a rhythm.

    A token begins where an operator with the same inputs comes again and again, with as many kernels from each time to the next. A layer comes again
    too, but not evenly: what chooses a token and looks the next one up lies between the last layer of one and the first of the next.
    """
    work = context.work[context.work["signature_id"].notna() & context.work["operator"].notna()]
    if work.empty or len(context.launches.in_backward()):
        return None
    begins: list[np.ndarray] = []
    before_ns = 0
    for step, part in work.groupby("step", sort=True):
        first = _token_starts(part)
        if first is None:
            return None
        begins.append(part["gpu_op_id"].to_numpy(np.int64)[first])
        spans = context.rank.steps[context.rank.steps["step"] == step]
        before_ns += int(part["start_ns"].to_numpy(np.int64)[first[0]]) - int(spans["start_ns"].iloc[0])
    counted = context.rank.counted
    whole = counted[counted["step"].isin(work["step"].unique())]
    lasts_ns = int((whole["end_ns"] - whole["start_ns"]).sum())
    tokens = np.concatenate(begins)
    return Generation(tuple(tokens.tolist()), len(tokens) / len(begins), max(before_ns, 0) / lasts_ns if lasts_ns > 0 else 0.0)


def _token_starts(part: pd.DataFrame) -> np.ndarray | None:
    """Return the places in one step's work at which tokens begin: of the evenest rhythms the slowest, where it comes first."""
    kinds = part.groupby(["operator", "signature_id", "kernel"], sort=False).ngroup().to_numpy()
    rhythms: list[np.ndarray] = []
    for kind in np.unique(kinds):
        at = np.flatnonzero(kinds == kind)
        if len(at) < FEWEST_TOKENS:
            continue
        lengths = np.append(np.diff(at), len(kinds) - at[-1])
        usual = int(np.median(lengths))
        if usual >= FEWEST_KERNELS and (np.abs(lengths - usual) <= 1).mean() >= EVEN_SHARE:
            rhythms.append(at)
    return min(rhythms, key=lambda at: (len(at), int(at[0]))) if rhythms else None


def _of_tokens(context: RuleContext, tokens: Generation) -> str:
    """Return what a step that is a generation takes for its prompt and for a token, for a title."""
    step_ms = context.step_ms or 0.0
    prompt_ms = step_ms * tokens.prompt_share
    return f"; {tokens.per_step:.0f} tokens of {in_words((step_ms - prompt_ms) / tokens.per_step)} follow {in_words(prompt_ms)} for the prompt"


def _masks(context: RuleContext) -> str:
    """Return the sentence on masks whose size the host has to know, empty where there are none: they cost little here, and no graph can hold them."""
    masks = operators(context, MASK_OPERATORS)
    waiting = len(waiting_calls(context, MASK_OPERATORS)) if masks.count else 0
    if not waiting:
        return ""
    names = " and ".join(sorted({str(name).removeprefix("aten::") for name in masks.frame["name"]}))
    return f" {names} must go first: the host waits there for a size that only the GPU knows, and no graph can hold that."


def _python(context: RuleContext) -> str:
    """Return the sentence on Python between the operators, in stretches too short for a rule of their own; empty where it is little."""
    lost = context.lost_ms("python_host")
    if context.share(lost) < PYTHON_SHARE:
        return ""
    return f" Python outside any operator holds launches up for {in_words(lost)} of each step more, which a graph skips too; profile(..., with_stack=True) names its lines."


def _gpu_may_limit(context: RuleContext) -> bool:
    """Tell whether the shortest step that telemetry allows is hardly longer than the GPU's own work with its dispatch: then nothing may wait for launches."""
    sampled = next((witness for witness in context.rank.best.witnesses if witness.source == "telemetry"), None)
    if sampled is None or context.rank.work is None:
        return False
    return context.share(sampled.low_ms - context.rank.work.occupied_ns / 1e6) < WARNING_SHARE


@dataclass(frozen=True)
class _Advice:
    """What to do in one kind of loop, and what ``edits`` assume of it; without edits nothing is predicted."""

    fix: str
    note: str
    risk: str = GRAPH_RISK
    changes: tuple[CodeChange, ...] = CHANGES
    edits: tuple[AsGraph, ...] = (AsGraph(),)
    confidence: Confidence = "medium"


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when launches cost more than WORTH_NAMING of the unprofiled step."""
    lost = context.lost_ms("launch_bound")
    if lost and searching_convolutions(context).ms > lost / 2:
        return  # the host does not launch, it tries algorithms: convolution-search says so
    if lost and excess_ms(context, plan_builds(context)) > lost / 2:
        return  # nor where it plans for new shapes
    idle = idle_by_telemetry_ms(context)
    least = lost if idle is None else min(lost, idle)
    if context.share(least) < WORTH_NAMING:
        return
    kernels, short = _kernels(context)
    if not kernels:
        return  # copies alone: small-copies speaks of those
    tokens = _generation(context)
    advice, unknown = _advice(context, tokens), _why_unknown(context, lost, tokens)
    severity: Severity | None = severity_of(context.share(least)) if least < lost else None
    yield context.finding(
        RULE.slug,
        f"The GPU waits {in_words(lost)} of each step for kernel launches: {in_number(kernels / len(context.rank.counted), 'kernel')} a step, "
        f"{short / kernels:.0%} shorter than 10 µs{_of_tokens(context, tokens) if tokens else ''}",
        advice.fix,
        ceiling_ms=lost + context.lost_ms("python_host"),
        edits=() if unknown else advice.edits,
        severity="info" if unknown or _gpu_may_limit(context) else severity,
        confidence="low" if unknown else advice.confidence,
        note=unknown or advice.note,
        risk=advice.risk,
        changes=advice.changes,
        evidence=context.gap_evidence("launch_bound"),
    )


def _kernels(context: RuleContext) -> tuple[int, int]:
    """Return how many kernels the counted steps have, and how many of them are too short to hide what an operator costs the host."""
    ((kernels, short),) = context.recording.rows(
        "SELECT count(*), count(*) FILTER (g.dur_ns < ?) FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) "
        "JOIN steps t ON t.device = g.device AND t.step = s.step WHERE t.counted AND g.kind = 'kernel' AND g.device = ?",
        [SHORT_KERNEL_NS, context.rank.device],
    )
    return kernels, short


def _why_unknown(context: RuleContext, lost: float, tokens: Generation | None) -> str:
    """Return why nothing can be predicted of a loop that loses ``lost`` ms of a step to launches; empty where it can."""
    waits = context.lost_ms("host_sync")
    if loader_may_limit(context) and hidden_time(context) is not None:
        return AFTER_LOADER
    if tokens is None and context.share(waits) >= WAITS_FIRST and lost <= 2 * waits:
        return AFTER_WAITS
    return AFTER_LOADING if context.share(context.lost_ms("compilation")) >= LOADS_CODE else ""


def _advice(context: RuleContext, tokens: Generation | None) -> _Advice:
    """Return what to do: compile blocks where weights are sharded; else a graph of each token or of the step, by hand where torch.compile stops at a layer."""
    if context.recording.named(SHARDED):
        return _Advice(SHARDED_FIX, SHARDED_NOTE, "", SHARDED_CHANGES, ())
    if tokens is not None:
        return _Advice(TOKEN_FIX, TOKEN_NOTE, edits=(AsGraph(first_ops=tokens.first),))
    if unlike_steps(context) is not None:
        return _Advice(LENGTHS_FIX, LENGTHS_NOTE, changes=(LENGTHS,), edits=(), confidence="low")
    beside = f"{_masks(context)}{_python(context)}"
    layer = recurrent_layer(context)
    if layer is None:
        return _Advice(STEP_FIX, STEP_NOTE + beside)
    risk = GRAPH_RISK + (PACKED_RISK if packs_sequences(context) else "")
    return _Advice(BY_HAND_FIX.format(layer=layer), CAPTURED_NOTE + beside, risk, (BY_HAND,))


RULE = Rule(
    "launch-bound",
    ("steps",),
    check,
    Explains(("launch_bound",), host_pace=True, as_graph=True, sets=("graph",)),
    reads=OF_TRACE | {"telemetry"},
)
