"""Communication runs while no kernel computes.

What it checks
    Time in which only collectives run (owner ``exposed_comm``). Waits for late ranks are not included if the traces of the other
    ranks show them.
Why it costs time
    DDP and FSDP send gradients and weights during the backward pass. Communication that does not overlap makes the step
    longer.
What to do
    The change depends on the job's parallelism. With data parallel, overlap communication with the backward pass (buckets),
    send fewer bytes, or accumulate under ``no_sync``. With FSDP, prefetch. With tensor parallel, also shard the sequence. In a
    pipeline, use more micro-batches. If large collectives reach less than a tenth of the link's bandwidth, find out which other
    path they take.
When it is wrong
    The run waits for a late rank. The traces of all ranks show this wait as a separate cause. Then find out why the rank is late.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.communication import Purpose, bus_gb_s, overlap_limit_ms, purpose_of
from sawtooth.analysis.knowledge.hardware import link_of
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

DDP_CHANGES = (
    CodeChange(
        "PyTorch",
        "model = DDP(model)",
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
        "model = DDP(model, gradient_as_bucket_view=True)\n"
        "model.register_comm_hook(None, bf16_compress_hook)   # NCCL only",
    ),
    CodeChange(
        "Lightning",
        'Trainer(strategy="ddp")',
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook\n"
        "Trainer(strategy=DDPStrategy(gradient_as_bucket_view=True, ddp_comm_hook=bf16_compress_hook))   # NCCL only",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        "TrainingArguments(..., gradient_accumulation_steps=4)   # communicates once for 4 batches; adapt the learning rate",
    ),
)
FSDP_CHANGES = (
    CodeChange(
        "PyTorch",
        "fully_shard(block)",
        "from torch.distributed.fsdp import MixedPrecisionPolicy\n"
        "fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))",
    ),
)
ASYNC_CHANGES = (
    CodeChange(
        "PyTorch",
        "dist.all_gather_into_tensor(whole, shard)\ncompute()",
        "work = dist.all_gather_into_tensor(whole, shard, async_op=True)\ncompute()   # what does not need the result\nwork.wait()",
    ),
)
SCHEDULE_CHANGES = (
    CodeChange(
        "PyTorch", "schedule = ScheduleGPipe(stage, n_microbatches=4)", "schedule = Schedule1F1B(stage, n_microbatches=16)"
    ),
)
SEQUENCE_CHANGES = (
    CodeChange(
        "PyTorch",
        'parallelize_module(block, mesh["tp"], {"attention": ColwiseParallel(), "out": RowwiseParallel()})',
        "from torch.distributed.tensor import Shard\n"
        "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module\n"
        'parallelize_module(block, mesh["tp"], {"norm": SequenceParallel(), "attention": ColwiseParallel(input_layouts=Shard(1)),\n'
        '                                       "out": RowwiseParallel(output_layouts=Shard(1))})',
    ),
)
LINK_CHANGES = (
    CodeChange(
        "PyTorch", "python train.py", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH python train.py   # which path it takes"
    ),
)
BUCKETS_RISK = "Compressed gradients lose precision. Accumulation makes the batch of an update larger."
OVERLAP_RISK = "Communication that overlaps with kernels takes some of their multiprocessors and memory bandwidth."
OVERLAP = Action(
    "Overlap",
    "communication with the backward pass",
    " (buckets), send fewer bytes (bf16), or communicate less often (accumulation with no_sync).",
)
# Advice by the purpose of the communication. Each kind of parallelism needs its own action.
ACTIONS: dict[Purpose | None, tuple[Action, tuple[CodeChange, ...]]] = {
    "ddp": (OVERLAP, DDP_CHANGES),
    "fsdp": (
        Action("Overlap", "gathers and reductions with computation", " (prefetch), or send fewer bytes (bf16)."),
        FSDP_CHANGES,
    ),
    "tp": (
        Action(
            "Shard", "the sequence too", " (sequence parallel), overlap with asynchronous tensor parallel, or reduce in bf16."
        ),
        SEQUENCE_CHANGES,
    ),
    "cp": (
        Action("Overlap", "the exchange of keys and values with attention", ", block by block around the ring."),
        ASYNC_CHANGES,
    ),
    "ep": (
        Action("Overlap", "the exchange of tokens with other computation", ", or send fewer bytes (FP8 or bf16)."),
        ASYNC_CHANGES,
    ),
    "pp": (
        Action("Use", "more micro-batches or another schedule", ", so that stages wait less for each other."),
        SCHEDULE_CHANGES,
    ),
    "optimizer": (
        Action(
            "Overlap",
            "the optimizer's communication with the optimizer's updates",
            ": begin each gather or reduction before the update that needs the result.",
        ),
        ASYNC_CHANGES,
    ),
    None: (
        Action("Overlap", "communication with computation", ", send fewer bytes (bf16), or communicate less often."),
        ASYNC_CHANGES,
    ),
}
# Share of the link's bandwidth. Large messages reach 75 to 90 %. If they reach less than a tenth, they use another path.
SLOW_LINK_SHARE = 0.1
FIND_PATH = Action(
    "Find",
    "out why the link is slow",
    ": large collectives reach {reached:.2g} of the {peak:.0f} GB/s of {name}. Look at the path that NCCL or RCCL chose.",
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if communication alone takes a relevant share of the lead rank's step."""
    rows = [row for row in context.rank.ledger if row.owner == "exposed_comm"]
    # The rule straggling-rank reports waiting for a late rank. Without other ranks, the time may be either.
    transfer_ms = sum(context.ledger_ms(row) for row in rows if row.cause != "comm_wait")
    if context.is_negligible(transfer_ms):
        return
    single_trace = all(row.cause not in ("comm_wait", "comm_transfer") for row in rows)
    action, changes = _advice(context)
    most_hidden_ms = overlap_limit_ms(context)
    limit_note = (
        f" Overlap can hide at most {in_words(most_hidden_ms)}, because the rest of the step has no computation to overlap with."
        if most_hidden_ms < transfer_ms
        else ""
    )
    if single_trace:
        action = replace(action, how=f"{action.how} Add the traces of the other ranks to separate waiting from transfer.")
    yield Evidence(
        Advice(
            f"The GPU only communicates for {in_words(transfer_ms)} of each step"
            + (": transfer, or waiting for a late rank" if single_trace else ""),
            action,
            note=f"Not predicted: how much can be overlapped depends on the order of the work.{limit_note}",
            risk=BUCKETS_RISK if changes is DDP_CHANGES else OVERLAP_RISK,
            changes=changes,
        ),
        lost_ms=transfer_ms if action.verb != "Overlap" else min(transfer_ms, most_hidden_ms),
        cost_ms=transfer_ms,
        confidence="low" if single_trace else "medium",
        rows=context.gap_evidence("comm_wait", "comm_transfer", "unattributed"),
    )


def _advice(context: RuleContext) -> tuple[Action, tuple[CodeChange, ...]]:
    """Return the action and the code: for a link far below its bandwidth, or else for the job's layout."""
    gpu, reached_gb_s = context.rank.gpu, bus_gb_s(context)
    link = link_of(gpu.name, "gpus") if gpu is not None else None
    if link is not None and reached_gb_s is not None and reached_gb_s < SLOW_LINK_SHARE * link.gb_s:
        return replace(FIND_PATH, how=FIND_PATH.how.format(reached=reached_gb_s, name=link.name, peak=link.gb_s)), LINK_CHANGES
    purpose = purpose_of(context)
    return ACTIONS.get(purpose, ACTIONS[None])


RULE = Rule(
    "exposed-communication",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=OTHER_CODE,
)
