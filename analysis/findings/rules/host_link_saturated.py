"""The link between the host and the GPU is saturated.

What it checks
    How long copies between pinned memory and the GPU take per step, in the busier direction. The rule also compares the traffic
    that telemetry measured (GPM, DCGM) with the bandwidth of this GPU's link.
Why it costs time
    A GPU reads terabytes per second from its own memory, but gets 16 to 63 GB/s from the host. Once the link is saturated,
    more workers, pinned memory or a separate stream do not help. Only fewer bytes help.
What to do
    Send fewer bytes: images as uint8, normalized on the GPU; 16-bit values instead of FP32; tokens instead of one-hot rows.
    Decode on the GPU, and keep data that every step uses on the GPU. Before a copy to the host, reduce the values on the GPU.
    Copy only values that the host reads. Check that the link has all its lanes: ``nvidia-smi -q`` prints generation and width.
When it is wrong
    Several GPUs share a link through one switch, so each GPU's copies are slow.
References
    https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.calls import CountedEvents
from sawtooth.analysis.findings.queries.copies import batch_transfer_note, copies
from sawtooth.analysis.knowledge.hardware import LINK_LIMIT_SHARE, Link, link_of
from sawtooth.analysis.replay.edits import Edit, ScaledOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes

# Share of the link's bandwidth. A pinned copy reaches a share of 0.88 (55.5 of 63 GB/s, H200), and half of this or less if the
# link lacks lanes.
ALL_LANES_SHARE = 0.5
BF16_SHARE = 0.5  # This share of the bytes remains with bf16 instead of FP32. With uint8, a quarter remains.


@dataclass(frozen=True)
class Direction:
    """One direction of the link, and the advice for it.

    ``copies`` matches the names of copies in this direction. ``traffic`` is the telemetry column with bytes/s.
    """

    name: str
    copies: str
    traffic: str
    action: Action
    note: str
    change: CodeChange


FROM_HOST = Direction(
    "from the host",
    "(?i)HtoD|HostToDevice",
    "pcie_rx_bps",
    Action("Send", "fewer bytes", ": uint8 images normalized on the GPU, 16-bit instead of FP32, decoding on the GPU."),
    "Predicted with half the bytes, as with bf16 instead of FP32; uint8 would be a quarter.",
    CodeChange(
        "PyTorch",
        'images = transform(images)   # float32 on the CPU\nimages = images.to("cuda", non_blocking=True)',
        'images = images.to("cuda", non_blocking=True)   # uint8: a quarter of the bytes\nimages = (images.float() - mean) / std   # mean and std are on the GPU',
    ),
)
TO_HOST = Direction(
    "to the host",
    "(?i)DtoH|DeviceToHost",
    "pcie_tx_bps",
    Action(
        "Copy",
        "fewer bytes to the host",
        ": reduce values on the GPU first (the chosen class instead of all logits), 16-bit instead of FP32, and only in the steps whose values are read.",
    ),
    "Predicted with half the bytes, as with bf16 instead of FP32; a value that is reduced on the GPU is smaller.",
    CodeChange(
        "PyTorch",
        'classes = logits.to("cpu").argmax(-1)   # all logits are copied',
        'classes = logits.argmax(-1).to("cpu")   # one number per row',
    ),
)
CHANGES = (FROM_HOST.change, TO_HOST.change)


@dataclass(frozen=True)
class LinkUse:
    """Use of the link in one direction.

    ``copying_share`` is the share of the step in which ``copies`` run. ``sampled_bps`` is the traffic by telemetry in bytes/s, and
    ``sampled_share`` the traffic's share of the link's bandwidth.
    """

    direction: Direction
    copies: CountedEvents
    copying_share: float
    sampled_bps: float
    sampled_share: float

    @property
    def share(self) -> float:
        """Share of the time or of the bandwidth, whichever is larger."""
        return max(self.copying_share, self.sampled_share)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if one direction is in use for LINK_LIMIT_SHARE of the step."""
    link = link_of(context.rank.gpu.name, "host") if context.rank.gpu is not None else None
    use = max((_link_use(context, direction, link) for direction in (FROM_HOST, TO_HOST)), key=lambda use: use.share)
    if use.copying_share >= LINK_LIMIT_SHARE:
        yield _evidence_of_copies(context, use, link)
    elif use.sampled_share >= LINK_LIMIT_SHARE and link is not None:
        title = f"The link to the host is full: {use.sampled_bps / 1e9:.3g} of the {link.gb_s:g} GB/s of {link.name} are in use {use.direction.name}"
        yield _evidence(title, use, "Not predicted: the copies in the profiled steps are not this traffic.")


def _link_use(context: RuleContext, direction: Direction, link: Link | None) -> LinkUse:
    all_copies = copies(context, direction.copies)
    # Pageable copies are slow for another reason.
    pinned_copies = all_copies.where(~all_copies.frame["name"].str.contains("pageable", case=False))
    telemetry = context.rank.telemetry
    sampled_bps = (telemetry.means.get(direction.traffic) if telemetry is not None else None) or 0.0
    sampled_share = sampled_bps / (link.gb_s * 1e9) if link is not None else 0.0
    return LinkUse(direction, pinned_copies, context.share(pinned_copies.ms_per_step), sampled_bps, sampled_share)


def _evidence_of_copies(context: RuleContext, use: LinkUse, link: Link | None) -> Evidence:
    bytes_per_step = float(use.copies.frame["bytes"].fillna(0).sum()) / max(use.copies.steps, 1)
    gb_per_s = bytes_per_step / (use.copies.ms_per_step / 1e3) / 1e9
    link_clause = f" of the {link.gb_s:g} of {link.name}" if link is not None else ""
    is_slow = link is not None and gb_per_s < ALL_LANES_SHARE * link.gb_s
    lanes_clause = "; check that the link has all its lanes" if is_slow else ""
    batch_note = batch_transfer_note(context, use.copies) if use.direction is FROM_HOST else ""
    title = (
        f"Copies use the link to the host for {100 * use.copying_share:.0f} % of each step: "
        f"{in_bytes(bytes_per_step)} {use.direction.name}{batch_note} at {gb_per_s:.3g} GB/s{link_clause}{lanes_clause}"
    )
    return _evidence(title, use, use.direction.note, ScaledOps(use.copies.ids, BF16_SHARE))


def _evidence(title: str, use: LinkUse, note: str, *edits: Edit) -> Evidence:
    return Evidence(
        Advice(
            title,
            use.direction.action,
            note=note,
            risk="The computation on these values moves from the CPU to the GPU.",
            changes=(use.direction.change,),
        ),
        lost_ms=use.copies.ms_per_step if edits else None,
        edits=edits,
        rows=use.copies.rows(),
        spans=use.copies.spans(),
    )


RULE = Rule(
    "host-link-saturated",
    measure,
    reads=TRACE_SOURCES | {"gpu_peaks", "telemetry"},
    requires=("steps",),
)
