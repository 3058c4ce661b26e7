"""Code that launches a step, or its parts, as CUDA graphs, and which optimizers a graph can contain."""

from __future__ import annotations

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.long_python_gaps import long_python_gaps
from sawtooth.analysis.findings.queries.copies import copies
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

OLD_GPU_FIX = Action(
    "Launch",
    "the step as one CUDA graph",
    ", captured by hand: torch.compile does not support this GPU. Or give each launch more work with a larger batch.",
)
TOKEN_FIX = Action(
    "Keep",
    "keys and values in a cache of one size and launch each token as one CUDA graph",
    ", by hand or with torch.compile(mode='reduce-overhead').",
)
TOKEN_NOTE = "Predicted with each token launched as one graph. The prompt is read as before, kernels keep their durations, and recorded waits after a token remain."
SHARDED_FIX = Action(
    "Compile",
    "the model block by block",
    ", so that it launches fewer kernels. Or give each launch more work with a larger batch.",
)
SHARDED_NOTE = "Not predicted: it is not known how many launches compiling removes. A CUDA graph cannot contain a step with sharded weights."
LENGTHS_FIX = Action(
    "Pad",
    "batches to a few lengths",
    ", and launch the step of each length as one CUDA graph; or give each launch more work with a larger batch.",
)
LENGTHS_NOTE = "Not predicted: shapes change from step to step, and a CUDA graph has one shape. It is unknown how many lengths are needed and how much work padding adds."
STAGES_FIX = Action(
    "Compile",
    "the model of each pipeline stage",
    ", so that it launches fewer kernels. Or cut the batch into fewer, larger microbatches.",
)
STAGES_NOTE = "Not predicted: it is not known how many launches compiling removes. A schedule of torch.distributed.pipelining sends and receives between microbatches, so no single CUDA graph contains the step."

# PyTorch's optimizers whose step a CUDA graph can contain. All except SGD need ``capturable=True``.
CAPTURABLE = ("Adadelta", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")

MIN_PYTHON_SHARE = 0.1  # Share of the step. The note mentions at least this much Python time between operators.

FROM_HOST = "(?i)HtoD|HostToDevice"  # Copies of input. No graph can contain them, because the addresses change in each step.

EAGER = "opt = torch.optim.AdamW(model.parameters(), lr=3e-4)\nfor x, y in loader:\n    train_step(x, y)"
# Warm-up on a side stream, static inputs, and an optimizer whose state and learning rate are on the GPU, as capture needs them.
CAPTURE = """opt = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-4, device="cuda"), fused=True, capturable=True)   # SGD as it is
def capture(x, y):
    x, y = x.to("cuda"), y.to("cuda")
    def train_step():
        opt.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), y)
        loss.backward(); opt.step()
        return loss
    side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3): train_step()   # these train; 11 with DistributedDataParallel
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):   # a loader may pin memory meanwhile
        loss = train_step()
    return graph, x, y, loss
"""
BY_HAND = CodeChange(
    "PyTorch",
    EAGER,
    CAPTURE
    + "graph, static_x, static_y, loss = capture(*next(iter(loader)))   # drop_last=True: one shape\nfor x, y in loader:\n"
    "    static_x.copy_(x, non_blocking=True); static_y.copy_(y, non_blocking=True)\n    graph.replay()",
)
COMPILED = CodeChange(
    "PyTorch",
    "model = $model.cuda()",
    'model = torch.compile($model.cuda(), mode="reduce-overhead")   # graphs of forward and backward pass, not of the optimizer',
    slot_defaults=MODEL,
)
CHANGES = (
    BY_HAND,
    COMPILED,
    CodeChange(
        "Lightning",
        "model = LitNet()",
        'model = LitNet()\nmodel.compile(mode="reduce-overhead")   # torch.compile(LitNet()) stops at self.log',
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        'TrainingArguments(..., torch_compile=True, torch_compile_mode="reduce-overhead")',
    ),
)
LENGTHS = CodeChange(
    "PyTorch",
    EAGER,
    CAPTURE + "graphs = {}   # one for each length\nfor x, y in loader:   # x padded to one of a few lengths\n"
    "    if x.shape not in graphs: graphs[x.shape] = capture(x, y)\n    graph, static_x, static_y, loss = graphs[x.shape]\n"
    "    static_x.copy_(x, non_blocking=True); static_y.copy_(y, non_blocking=True)\n    graph.replay()",
)
SHARDED_CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in model.blocks:\n    fully_shard(block)",
        "for block in model.blocks:\n    block.compile()   # fewer, larger kernels; the host gathers weights between the blocks as before\n    fully_shard(block)",
    ),
)
STAGES_CHANGES = (
    CodeChange(
        "PyTorch",
        "stage = PipelineStage(part, rank, stages, device)",
        "part.compile()   # this stage's layers: fewer, larger kernels for each microbatch\nstage = PipelineStage(part, rank, stages, device)",
    ),
)


# A trainer's step contains callbacks, logging and the optimizer, so users cannot capture the step by hand.
TRAINER_FIXES = {
    trainer: Action(
        "Launch", "the model's passes as CUDA graphs", f" with {code}; or give each launch more work with a larger batch."
    )
    for trainer, code in (
        ("Transformers", "torch_compile=True and torch_compile_mode='reduce-overhead'"),
        ("Lightning", "model.compile(mode='reduce-overhead')"),
    )
}


def one_graph(context: RuleContext, outside: tuple[int, ...] = ()) -> AsGraph:
    """Return the edit that launches a step as one graph, without input copies and without ``outside``."""
    return AsGraph(outside_ops=(*copies(context, FROM_HOST).ids, *outside))


def python_in_graph(context: RuleContext) -> str:
    """Return a sentence about Python time between the operators, empty if this time is short.

    Long gaps do not count, because another rule reports them.
    """
    lost_ms = context.lost_ms("python_host")
    if context.share(lost_ms) >= MIN_PYTHON_SHARE:
        long_ns = sum(ns for _, ns, _ in long_python_gaps(context))
        lost_ms -= long_ns / 1e6 / max(len(context.rank.counted), 1)
    if context.share(lost_ms) < MIN_PYTHON_SHARE:
        return ""
    return f" Python outside any operator delays launches for another {in_words(lost_ms)} of each step, which a graph also removes; profile(..., with_stack=True) names its lines."
