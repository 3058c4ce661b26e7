"""The link between the host and the GPU is full.

What it checks
    How long copies between pinned memory and the GPU last in a step, in one direction, and the traffic that telemetry measured (GPM, DCGM) against
    what the link of this GPU carries.
Why it costs time
    A GPU computes on terabytes a second and is fed by 16 to 63 GB/s. Once the link is full, more workers, pinned memory and a stream of its own
    change nothing: only fewer bytes do.
What to do
    Send fewer bytes: images as uint8 and normalized on the GPU, 16-bit instead of FP32, tokens instead of one-hot rows; decode on the GPU; keep what
    every step uses there. Look whether the link has all its lanes: ``nvidia-smi -q`` prints generation and width.
When it is wrong
    Several GPUs behind one switch share a link, and each sees slow copies. Copies from pageable memory are slow by themselves and are not counted.
References
    https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries.calls import Events
from sawtooth.analysis.findings.queries.copies import copies
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.knowledge.hardware import LINK_FULL, Link, link_of
from sawtooth.analysis.replay.edits import Edit, ScaledOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_bytes

SLOW = 0.5  # of the link: a pinned copy reaches 0.88 of it (55.5 of 63 GB/s, H200), one over fewer lanes half of that or less
HALF = 0.5  # of the bytes: FP32 as bf16; uint8 instead of FP32 is a quarter
DIRECTIONS = (
    ("from the host", "(?i)HtoD|HostToDevice", "pcie_rx_bps"),
    ("to the host", "(?i)DtoH|DeviceToHost", "pcie_tx_bps"),
)

CHANGES = (
    CodeChange(
        "PyTorch",
        'images = transform(images)   # float32 on the CPU\nimages = images.to("cuda", non_blocking=True)',
        'images = images.to("cuda", non_blocking=True)   # uint8: a quarter of the bytes\nimages = (images.float() - mean) / std',
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding for the direction in which the link is in use for LINK_FULL of the step, where there is one."""
    link = link_of(context.rank.gpu.name, "host") if context.rank.gpu is not None else None
    for where, pattern, column in DIRECTIONS:
        moved = copies(context, pattern)
        moved = moved.where(~moved.frame["name"].str.contains("pageable", case=False))
        sampled = context.rank.telemetry.means.get(column) if context.rank.telemetry is not None else None
        by_samples = sampled / (link.gb_s * 1e9) if sampled is not None and link is not None else 0.0
        if context.share(moved.ms) >= LINK_FULL:
            yield _by_copies(context, moved, where, link)
        elif by_samples >= LINK_FULL and sampled is not None and link is not None:
            title = f"The link to the host is full: {sampled / 1e9:.3g} GB/s {where}, and {link.name} carries {link.gb_s:g}"
            yield _finding(context, title, moved, "Not predicted: the copies in the profiled steps are not this traffic.")


def _by_copies(context: RuleContext, moved: Events, where: str, link: Link | None) -> Finding:
    size = float(moved.frame["bytes"].fillna(0).sum()) / max(moved.steps, 1)
    rate = size / (moved.ms / 1e3) / 1e9
    carries = f" of the {link.gb_s:g} that {link.name} carries" if link is not None else ""
    lanes = "; look whether it has all its lanes" if link is not None and rate < SLOW * link.gb_s else ""
    title = f"Copies use the link to the host for {100 * context.share(moved.ms):.0f} % of each step: {in_bytes(size)} {where} at {rate:.3g} GB/s{carries}{lanes}"
    note = "The copies with half the bytes, as where FP32 becomes bf16; uint8 in its place is a quarter."
    return _finding(context, title, moved, note, ScaledOps(moved.ids, HALF))


def _finding(context: RuleContext, title: str, moved: Events, note: str, *edits: Edit) -> Finding:
    return context.finding(
        RULE.slug,
        title,
        "Send fewer bytes: uint8 images normalized on the GPU, 16-bit instead of FP32, decoding on the GPU.",
        ceiling_ms=moved.ms if edits else None,
        edits=edits,
        note=note,
        risk="What was computed from the values on the CPU is computed on the GPU instead.",
        changes=CHANGES,
        evidence=moved.rows(),
        places=moved.places(),
    )


RULE = Rule("host-link-saturated", ("steps",), check, Explains())
