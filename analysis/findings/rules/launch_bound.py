"""The host cannot launch kernels fast enough.

What it checks
    Idle time with an empty launch queue while the host is inside operators or launch calls (cause ``launch_bound``). It is
    estimated for the run without the profiler, because profiling slows the host.
Why it costs time
    Each operator takes the host 5 to 20 µs. A shorter kernel finishes before the host has launched the next kernel.
What to do
    Launch less often. ``torch.compile(mode="reduce-overhead")`` or a CUDA graph replays the whole step with one launch. A
    larger batch gives each launch more work. Fused and foreach optimizers need a few kernels instead of thousands.
When it is wrong
    If a larger batch costs no extra time, increasing the batch is the better change. torch.compile stops at nn.LSTM, nn.GRU
    and nn.RNN, so capture such a step by hand. Graphs need static shapes and no synchronization inside. If shapes change, pad
    to a few lengths and capture one graph for each. A graph cannot contain a step of ``FullyShardedDataParallel`` or a
    pipeline's schedule. Then compile block by block or stage by stage.
References
    https://github.com/pytorch/pytorch/issues/127225 (FullyShardedDataParallel)
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs and
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.findings.actions import optimizers
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.generation import Generation, generated_tokens
from sawtooth.analysis.findings.judging import WARNING_SHARE
from sawtooth.analysis.findings.loops.acting import UPDATE_FIX, UPDATE_NOTE, UPDATE_RISK, acting_passes, share_outside_acting
from sawtooth.analysis.findings.loops.capture_obstacles import waits_per_step
from sawtooth.analysis.findings.loops.graph_code import (
    BY_HAND,
    CAPTURABLE,
    CHANGES,
    LENGTHS,
    LENGTHS_FIX,
    LENGTHS_NOTE,
    OLD_GPU_FIX,
    SHARDED_CHANGES,
    SHARDED_FIX,
    SHARDED_NOTE,
    STAGES_CHANGES,
    STAGES_FIX,
    STAGES_NOTE,
    TOKEN_FIX,
    TOKEN_NOTE,
    TRAINER_FIXES,
    one_graph,
    python_in_graph,
)
from sawtooth.analysis.findings.loops.replayed_graphs import evidence_outside_graphs, replayed_graphs
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.communication import FSDP
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.loading import hidden_time, loader_may_limit
from sawtooth.analysis.findings.queries.plan_builds import AFTER_LOADING, excess_ms, loads_code, plan_builds
from sawtooth.analysis.findings.queries.recurrent import packs_sequences, recurrent_layer
from sawtooth.analysis.findings.queries.shapes import differing_step_flops
from sawtooth.analysis.findings.queries.telemetry import idle_by_telemetry_ms
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.replay.edits import AsGraph, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Confidence, Explains, Finding
from sawtooth.analysis.units import in_number, in_words, percent

# Share of the step, as in the rule host-waits-for-gpu. If waits cost at least this share, and launches at most twice as much as the
# waits, then the waits may be the reason for late launches.
MIN_WAITS_SHARE = 0.01
SHORT_KERNEL_NS = 10_000  # An operator takes the host about 10 µs. A shorter kernel cannot hide this time.
MIN_KERNELS = 5  # Per step. Launching a graph takes the host 5 to 10 µs, as long as launching two or three kernels.

STEP_FIX = Action(
    "Launch",
    "the step as one CUDA graph",
    ", captured by hand; torch.compile(mode='reduce-overhead') captures only the forward and backward pass. Or give each launch more work with a larger batch.",
)
PASS_FIX = Action(
    "Launch",
    "the step as one CUDA graph",
    " with torch.compile(mode='reduce-overhead'), or by hand; or give each launch more work with a larger batch.",
)
MODEL_FIX = Action(
    "Launch",
    "the model's passes as CUDA graphs",
    " with torch.compile(mode='reduce-overhead'), which leaves the optimizer outside; or give each launch more work with a larger batch.",
)
BY_HAND_FIX = (
    ", captured by hand: torch.compile stops at {layer}, which cuDNN runs. Or give each launch more work with a larger batch."
)
PACKED_RISK = " Packed sequences have other lengths in each batch: pad them to one length first."
STEP_NOTE = "Predicted with each step launched as one graph. Its input is copied as before, and kernels keep their durations."
MODEL_NOTE = "Predicted with the forward and backward pass launched as one graph. The {kernels} of {optimizer}, which {reason}, stay as before. Kernels keep their durations."
COMPILED_NOTE = " torch.compile(mode='reduce-overhead') leaves the optimizer's {kernels} outside: a step then takes ≈ {ms}. Compiling would also fuse kernels."
GRAPH_RISK = "Graphs need static shapes and addresses. Code that reads a GPU value must move out of the step."
AFTER_WAITS = "Not predicted: remove the host's waits first. They delay later launches, and a graph cannot contain them."
AFTER_LOADER = "Not predicted: the run waits for its loader's workers. The profiled steps do not show these waits. Faster launches do not help until the workers deliver more."
UNEXPLAINED = "Not predicted: the waits without a known cause are longer than the waits for launches."


def _token_times(context: RuleContext, tokens: Generation) -> str:
    """Return the times of the prompt and of each token of a generation, as the end of a title."""
    step_ms = context.step_ms or 0.0
    prompt_ms = step_ms * tokens.prompt_share
    token_ms = (step_ms - prompt_ms) / tokens.per_step
    return f". After {in_words(prompt_ms)} for the prompt, each of {tokens.per_step:.0f} tokens takes {in_words(token_ms)}"


def _gpu_may_limit(context: RuleContext) -> bool:
    """Return whether, by telemetry, the run's step may be as short as the GPU's own work."""
    sampled = next((evidence for evidence in context.rank.best.evidence if evidence.source == "telemetry"), None)
    if sampled is None or context.rank.work is None:
        return False
    return context.share(sampled.low_ms - context.rank.work.occupied_ns / 1e6) < WARNING_SHARE


@dataclass(frozen=True)
class _GraphAdvice:
    """The advice for one kind of loop, and the edits that predict the gain, if it can be predicted."""

    action: Action
    note: str
    risk: str = GRAPH_RISK
    changes: tuple[CodeChange, ...] = CHANGES
    edits: tuple[AsGraph, ...] = (AsGraph(),)
    confidence: Confidence = "medium"


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if launches cost a relevant share of the unprofiled step."""
    lost_ms = context.lost_ms("launch_bound") * share_outside_acting(context, "launch_bound")
    if lost_ms and searching_convolutions(context).ms_per_step > lost_ms / 2:
        return  # The host tries algorithms instead of launching, which the rule convolution-search reports.
    if lost_ms and excess_ms(context, plan_builds(context)) > lost_ms / 2:
        return  # The host builds plans for new shapes, which the rule plans-for-new-shapes reports.
    idle_ms = idle_by_telemetry_ms(context)
    cost_ms = lost_ms if idle_ms is None else min(lost_ms, idle_ms)
    if context.is_negligible(cost_ms):
        return
    if replayed_graphs(context) is not None:
        yield from evidence_outside_graphs(context, cost_ms)
        return
    kernels, short_kernels = _kernels(context)
    if kernels < MIN_KERNELS * len(context.rank.counted):
        return  # A graph would save nothing. If there are only copies, the rule small-copies reports them.
    tokens = generated_tokens(context)
    advice, why_unknown = _advice(context, tokens), _why_unknown(context, lost_ms, tokens)
    yield Evidence(
        Advice(
            f"The GPU waits {in_words(lost_ms)} of each step for kernel launches: {in_number(kernels / len(context.rank.counted), 'kernel')} per step, "
            f"{percent(short_kernels / kernels)} of them shorter than 10 µs{_token_times(context, tokens) if tokens else ''}",
            advice.action,
            note=why_unknown or advice.note,
            risk=advice.risk,
            changes=advice.changes,
        ),
        lost_ms=lost_ms + context.lost_ms("python_host") * share_outside_acting(context, "python_host"),
        cost_ms=cost_ms,
        stated_ms=lost_ms,
        edits=() if why_unknown else advice.edits,
        rest="other host work between the launches",
        confidence="low" if why_unknown else advice.confidence,
        severity="info" if why_unknown or _gpu_may_limit(context) else None,
        severity_by_cost=cost_ms < lost_ms,
        rows=context.gap_evidence("launch_bound"),
    )


def _kernels(context: RuleContext) -> tuple[int, int]:
    """Return how many kernels the counted steps have, and how many are shorter than SHORT_KERNEL_NS."""
    ((kernels, short),) = context.recording.rows(
        "SELECT count(*), count(*) FILTER (g.dur_ns < ?) FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) "
        "JOIN steps t ON t.device = g.device AND t.step = s.step WHERE t.counted AND g.kind = 'kernel' AND g.device = ?",
        [SHORT_KERNEL_NS, context.rank.device],
    )
    return kernels, short


def _why_unknown(context: RuleContext, lost_ms: float, tokens: Generation | None) -> str:
    """Return why no gain can be predicted; empty if it can.

    ``lost`` is the time per step that the loop loses to launches, ms.
    """
    if loader_may_limit(context) and hidden_time(context) is not None:
        return AFTER_LOADER
    if tokens is None and context.share(waits := context.lost_ms("host_sync")) >= MIN_WAITS_SHARE and lost_ms <= 2 * waits:
        return AFTER_WAITS
    if tokens is None and context.lost_ms("unattributed", owner="idle") > lost_ms:
        return UNEXPLAINED
    return AFTER_LOADING if loads_code(context) else ""


def _advice(context: RuleContext, tokens: Generation | None) -> _GraphAdvice:
    if context.recording.named(FSDP):
        return _GraphAdvice(SHARDED_FIX, SHARDED_NOTE, "", SHARDED_CHANGES, ())
    if context.run.communication is not None and context.run.communication.schedule is not None:
        return _GraphAdvice(STAGES_FIX, STAGES_NOTE, "", STAGES_CHANGES, ())
    if tokens is not None:
        return _GraphAdvice(TOKEN_FIX, TOKEN_NOTE, edits=(AsGraph(first_ops=tokens.first_ops),))
    acts = acting_passes(context)
    if acts is not None:
        graphs = () if acts.acts_after_update else (AsGraph(first_ops=acts.updates),)
        return _GraphAdvice(UPDATE_FIX, UPDATE_NOTE, UPDATE_RISK, (BY_HAND,), graphs)
    if differing_step_flops(context) is not None:
        return _GraphAdvice(LENGTHS_FIX, LENGTHS_NOTE, changes=(LENGTHS,), edits=(), confidence="low")
    additions = python_in_graph(context)
    layer = recurrent_layer(context)
    if layer is None:
        return _advice_for_step(context, additions)
    risk = GRAPH_RISK + (PACKED_RISK if packs_sequences(context) else "")
    action = Action("Launch", "the step as one CUDA graph", BY_HAND_FIX.format(layer=layer))
    return _GraphAdvice(action, STEP_NOTE + additions, risk, (BY_HAND,), (one_graph(context),))


def _advice_for_step(context: RuleContext, additions: str) -> _GraphAdvice:
    """Return the advice for a step: one graph, or one of the passes if the optimizer cannot be captured.

    ``additions`` are sentences for the note, about Python time.
    """
    if not context.compilable:
        return _GraphAdvice(OLD_GPU_FIX, STEP_NOTE + additions, changes=(BY_HAND,), edits=(one_graph(context),))
    optimizer_ops = tuple(launched_by_optimizer(context.recording, context.rank.device).tolist())
    compile_changes = tuple(change for change in CHANGES if change is not BY_HAND)
    if not optimizer_ops:
        return _GraphAdvice(PASS_FIX, STEP_NOTE + additions, changes=compile_changes, edits=(one_graph(context),))
    launches = in_number(len(optimizer_ops) / max(len(context.rank.steps), 1), "launch", "launches")
    passes_graph = one_graph(context, optimizer_ops)
    not_capturable = [name for name in optimizers(context.recording) if name not in CAPTURABLE]
    if not_capturable:
        note = MODEL_NOTE.format(kernels=launches, optimizer=not_capturable[0], reason="cannot be captured")
        return _GraphAdvice(MODEL_FIX, note + additions, changes=compile_changes, edits=(passes_graph,))
    if context.trainer:
        note = MODEL_NOTE.format(kernels=launches, optimizer="the optimizer", reason=f"{context.trainer} calls")
        return _GraphAdvice(
            TRAINER_FIXES[context.trainer],
            note,
            changes=compile_changes,
            edits=(AsGraph(waits_stay=True, outside_ops=passes_graph.outside_ops),),
        )
    compiled_ms = context.predict_ms([passes_graph])
    compiled_note = COMPILED_NOTE.format(kernels=launches, ms=in_words(compiled_ms)) if compiled_ms is not None else ""
    return _GraphAdvice(STEP_FIX, STEP_NOTE + compiled_note + additions, edits=(one_graph(context),))


def _is_one_graph(_context: RuleContext, _waits: Finding, graph: Finding) -> bool:
    """Return whether the step is one graph. Between two graphs, the host may wait."""
    return not any(isinstance(edit, AsGraph) and (edit.first_ops or edit.waits_stay) for edit in graph.edits)


def _stops_the_capture(context: RuleContext, waits: Finding, graph: Finding) -> bool:
    """Return whether the host waits in each step, so that no capture of a step succeeds.

    Such waits come first, even if removing them alone gains little.
    """
    calls = {call for edit in waits.edits if isinstance(edit, WithoutWaits) for call in edit.calls or ()}
    return bool(graph.edits) and round(waits_per_step(context, calls)) >= 1


RULE = Rule(
    "launch-bound",
    measure,
    reads=TRACE_SOURCES | {"telemetry"},
    explains=Explains(("launch_bound",), topics=frozenset({"host_pace", "cuda_graph"}), sets=("graph",)),
    requires=("steps", "CUDA graphs"),
    needs=(
        Relation(
            "host-waits-for-gpu",
            "“{title}” comes first, because one graph cannot contain these waits. If they stay, a step consists of several graphs.",
            applies=_is_one_graph,
            orders=_stops_the_capture,
        ),
        Relation(
            "boolean-mask-waits",
            "“{title}” comes first, because no graph can contain an operator that waits for the size of its result.",
            applies=_is_one_graph,
            orders=_stops_the_capture,
        ),
        Relation(
            "tensors-made-on-cpu",
            "“{title}” comes first, because no graph can contain a copy for which the host waits.",
        ),
        Relation(
            "unused-parameter-search",
            "“{title}” comes first, because with an unused parameter the host waits for the ranks in each backward pass, which no graph can contain.",
        ),
        Relation(
            "anomaly-detection", "“{title}” comes first, because no graph can contain the tests, which read each gradient."
        ),
    ),
    threshold=OTHER_CODE,
)
