"""Operators build a plan on the host for each new shape.

What it checks
    Operators whose own host time for a new shape is at least 0.5 ms and at least 10 times their time for a known shape, in several
    counted steps. Own time excludes launches and other calls.
Why it costs time
    cuDNN compiles kernels for each new shape of attention, 40 to 50 ms per pass, and plans each convolution for about a
    millisecond. cuBLASLt chooses a kernel for each product. The GPU waits meanwhile. A loop with changing lengths pays this
    in nearly every step.
What to do
    For attention, disable cuDNN: ``torch.backends.cuda.enable_cudnn_sdp(False)``, or use
    ``torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)`` around the call. For any operator, pad to a few lengths,
    because plans are reused.
When it is wrong
    The run has few lengths, so no more plans are built once all lengths have occurred. Profile later steps. An operator that is
    called only once for each shape gives no finding, because its time for a known shape is not recorded. On Hopper, flash
    attention's kernels are slower than cuDNN's, which matters for long sequences.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html and
    https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.enable_cudnn_sdp
    https://github.com/pytorch/pytorch/pull/155958 (cuDNN's attention compiles for each length) and
    https://github.com/huggingface/transformers/pull/48163 (cuDNN and flash attention on several GPUs)
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.queries.calls import CountedEvents, operators
from sawtooth.analysis.findings.queries.plan_builds import excess_ms, plan_builds
from sawtooth.analysis.replay.edits import Edit, FasterHost, ScaledOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_ATTENTION_SHARE = 0.5  # Of the planning time. If attention has a larger share, another backend helps without padding.
ATTENTION = r"^aten::_cudnn_attention_"
CONVOLUTION = "convolution"  # Its sizes usually belong to images, not to sequence lengths.
# Time of flash attention's kernels relative to cuDNN's: 1.7 to 2.3 on Hopper (H100, training shapes), at most 1 elsewhere.
FLASH_FACTOR, MIN_FLASH_FACTOR, MAX_FLASH_FACTOR = 1.7, 1.0, 2.3

BACKEND_FIX = Action(
    "Use",
    "another attention backend than cuDNN's",
    ", which needs no plan: torch.backends.cuda.enable_cudnn_sdp(False). Or pad to a few lengths, because plans are stored.",
)
PAD_FIX = Action("Pad", "inputs to a few lengths or sizes", ": the plan for a shape is stored after its first use.")
BACKEND_NOTE = "Predicted by the replay without the host's planning of attention; flash attention's kernels take 1 to 2.3 times as long as cuDNN's."
PAD_NOTE = "Not predicted, because it is unknown how much work padding adds."
KNOWN_LENGTHS_NOTE = "Each length is planned only once, so planning ends when all lengths have occurred."
PAD_LENGTHS = CodeChange(
    "PyTorch",
    "length = max(map(len, batch))",
    "length = -(-max(map(len, batch)) // 128) * 128   # few lengths: round up to 128",
)
PAD_SIZES = CodeChange(
    "PyTorch",
    "y = model(images)",
    "height, width = images.shape[-2:]\nimages = F.pad(images, (0, -width % 64, 0, -height % 64))   # few sizes: round up to 64\ny = model(images)",
)
BACKEND_CHANGES = (
    CodeChange(
        "PyTorch", "import torch", "import torch\ntorch.backends.cuda.enable_cudnn_sdp(False)   # flash attention instead"
    ),
    CodeChange(
        "PyTorch",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "from torch.nn.attention import SDPBackend, sdpa_kernel\nwith sdpa_kernel(SDPBackend.FLASH_ATTENTION):\n    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    ),
    CodeChange(
        "Transformers",
        "DataCollatorWithPadding(tokenizer)",
        "DataCollatorWithPadding(tokenizer, pad_to_multiple_of=128)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if plans for new shapes take a relevant share of the step."""
    builds = plan_builds(context)
    planning_ms = excess_ms(context, builds)
    if context.is_negligible(planning_ms):
        return
    attention = builds.where(builds.frame["name"].str.contains(ATTENTION))
    mostly_attention = excess_ms(context, attention) > MIN_ATTENTION_SHARE * planning_ms
    longest = builds.frame.loc[builds.frame["own_ns"].idxmax()]
    yield Evidence(
        Advice(
            f"Operators build a plan for each new shape: {in_words(planning_ms)} of each step on the host. {longest['name']} takes {in_words(longest['own_ns'] / 1e6)} "
            f"for a new shape, {in_words((longest['own_ns'] - longest['excess_ns']) / 1e6)} for a known shape",
            BACKEND_FIX if mostly_attention else PAD_FIX,
            note=f"{BACKEND_NOTE if mostly_attention else PAD_NOTE} {KNOWN_LENGTHS_NOTE}",
            risk="Flash attention rounds differently in the last bits. With a mask, memory-efficient attention runs instead."
            if mostly_attention
            else "Padding adds work, and needs a mask.",
            changes=(*BACKEND_CHANGES, PAD_LENGTHS)
            if mostly_attention
            else (PAD_SIZES if CONVOLUTION in longest["name"] else PAD_LENGTHS,),
        ),
        lost_ms=planning_ms,
        cost_ms=planning_ms,
        edits=_without_plans(context, attention) if mostly_attention else (),
        confidence="high" if mostly_attention else "medium",
        rows=builds.rows(),
        spans=builds.spans(),
    )


def _without_plans(context: RuleContext, builds: CountedEvents) -> list[Edit]:
    """Return the edits that remove the plans of ``builds`` and run attention with another backend."""
    rows = context.recording.rows(
        "SELECT call_id FROM runtime_calls WHERE cpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY 1", [list(builds.ids)]
    )
    stays = 1 - float(builds.frame["excess_ns"].sum() / builds.frame["own_ns"].sum())
    calls, work = operators(context, ATTENTION).ids, context.work
    kernels = work.loc[work["cpu_op_id"].isin(calls), "gpu_op_id"]
    return [
        FasterHost(stays, tuple(int(row[0]) for row in rows), low=stays, high=stays),
        ScaledOps(tuple(kernels.tolist()), FLASH_FACTOR, MIN_FLASH_FACTOR, MAX_FLASH_FACTOR),
    ]


RULE = Rule(
    "plans-for-new-shapes",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="plans for new shapes"),
    requires=("steps", "shapes"),
    threshold=CALL_TO_CHECK,
    part_of="launch-bound",
)
