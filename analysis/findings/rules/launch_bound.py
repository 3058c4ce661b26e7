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
    With a batch that grows at no cost, batch size is the better change. Graphs need static shapes and no synchronization inside.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs and https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries import idle_by_telemetry_ms, searching_convolutions
from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words, severity_of
from sawtooth.analysis.findings.tokens import Generation, generation
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.05  # a graph needs static shapes and care: not worth it for less than 5 % of the step
WAITS_FIRST = (
    0.01  # as the rule of waits names them: launches that lag no more than twice what waits cost may lag because of them
)
SHORT_KERNEL_NS = 10_000  # an operator costs the host about 10 µs: shorter kernels cannot hide it

CHANGES = (
    CodeChange(
        "PyTorch", "model = Net().cuda()", 'model = torch.compile(Net().cuda(), mode="reduce-overhead")   # CUDA graphs inside'
    ),
    CodeChange(
        "PyTorch",
        "for x, y in loader:\n    train_step(x, y)",
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    train_step(static_x, static_y)\n"
        "for x, y in loader:\n    static_x.copy_(x, non_blocking=True); static_y.copy_(y, non_blocking=True)\n    graph.replay()",
    ),
    CodeChange("Lightning", "model = LitNet()", 'model = torch.compile(LitNet(), mode="reduce-overhead")'),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        'TrainingArguments(..., torch_compile=True, torch_compile_mode="reduce-overhead")',
    ),
)


STEP_FIX = "Launch the step as one CUDA graph, by hand or with torch.compile(mode='reduce-overhead'); or give each launch more work with a larger batch."
TOKEN_FIX = "Keep keys and values in a cache of one size and launch each token as one CUDA graph, by hand or with torch.compile(mode='reduce-overhead')."
TOKEN_NOTE = "Each token launched as one graph, the prompt read as before; kernels keep their durations, and the host still waits after each token where it did."


def _of_tokens(context: RuleContext, tokens: Generation) -> str:
    """Return what a step that is a generation takes for its prompt and for a token, for a title."""
    step_ms = context.step_ms or 0.0
    prompt_ms = step_ms * tokens.prompt_share
    return f"; {tokens.per_step:.0f} tokens of {in_words((step_ms - prompt_ms) / tokens.per_step)} follow {in_words(prompt_ms)} for the prompt"


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when launches cost more than WORTH_NAMING of the unprofiled step."""
    lost = context.lost_ms("launch_bound")
    if lost and searching_convolutions(context).ms > lost / 2:
        return  # the host does not launch, it tries algorithms: convolution-search says so
    idle = idle_by_telemetry_ms(context)
    if context.share(lost if idle is None else min(lost, idle)) < WORTH_NAMING:
        return
    rows = context.recording.rows(
        "SELECT count(*), count(*) FILTER (g.dur_ns < ?) FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) "
        "JOIN steps t ON t.device = g.device AND t.step = s.step WHERE t.counted AND g.kind = 'kernel' AND g.device = ?",
        [SHORT_KERNEL_NS, context.rank.device],
    )
    kernels, short = rows[0]
    steps = len(context.rank.counted)
    waits = context.lost_ms("host_sync")
    tokens = generation(context)
    after_waits = tokens is None and context.share(waits) >= WAITS_FIRST and lost <= 2 * waits
    yield context.finding(
        RULE.slug,
        f"The GPU waits {in_words(lost)} of each step for kernel launches: {kernels / steps:,.0f} kernels a step, {short / kernels:.0%} shorter than 10 µs"
        + (_of_tokens(context, tokens) if tokens else ""),
        TOKEN_FIX if tokens else STEP_FIX,
        ceiling_ms=lost + context.lost_ms("python_host"),
        edits=[AsGraph(first_ops=tokens.first)] if tokens else [] if after_waits else [AsGraph()],
        severity="info" if after_waits else None if idle is None or idle >= lost else severity_of(context.share(idle)),
        confidence="low" if after_waits else "medium",
        note="Not predicted: the host's waits come first. They cost it its head start, and a graph cannot hold them."
        if after_waits
        else TOKEN_NOTE
        if tokens
        else "Each step launched as one graph; kernels keep their durations. Compiling would also fuse some of them.",
        risk="Graphs need static shapes and addresses; anything that reads a GPU value inside the step must move out.",
        changes=CHANGES,
        evidence=context.gap_evidence("launch_bound"),
    )


RULE = Rule("launch-bound", ("steps",), check, Explains(("launch_bound",)))
