"""The link between the host and the GPU is saturated.

What it checks
    How long copies between pinned memory and the GPU take per step, in the direction with more use. It also compares the
    traffic measured by telemetry (GPM, DCGM) with the bandwidth of this GPU's link.
Why it costs time
    A GPU reads terabytes per second from its own memory, but gets 16 to 63 GB/s from the host. Once the link is saturated,
    more workers, pinned memory or a separate stream do not help. Only fewer bytes do.
What to do
    Send fewer bytes: images as uint8, normalized on the GPU; 16-bit values instead of FP32; tokens instead of one-hot rows.
    Decode on the GPU, and keep data on the GPU that every step uses. To the host: reduce values on the GPU before the copy,
    and copy only values that the host reads. Check that the link has all its lanes: ``nvidia-smi -q`` prints generation and
    width.
When it is wrong
    Several GPUs share a link through one switch, so each sees slow copies. Copies from pageable memory are slow for another
    reason and are not counted.
References
    https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.calls import CountedEvents
from sawtooth.analysis.findings.queries.copies import copies, of_the_batch
from sawtooth.analysis.knowledge.hardware import LINK_FULL, Link, link_of
from sawtooth.analysis.replay.edits import Edit, ScaledOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes

# Share of the link's bandwidth. A pinned copy reaches 0.88 of it (55.5 of 63 GB/s, H200). With fewer lanes, it reaches half of
# that or less.
SLOW = 0.5
HALF = 0.5  # This share of the bytes remains with bf16 instead of FP32. With uint8, a quarter remains.


@dataclass(frozen=True)
class Direction:
    """One direction of the link: its name, its copies' names, telemetry's traffic column, and the change."""

    where: str
    copies: str
    column: str
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
class Use:
    """Use of the link in one direction.

    ``copying`` is the share of the step in which the copies ``moved`` run. ``sampled`` is the traffic by telemetry in bytes/s, and
    ``sampled_share`` its share of the link's bandwidth.
    """

    direction: Direction
    moved: CountedEvents
    copying: float
    sampled: float
    sampled_share: float

    @property
    def share(self) -> float:
        """Share of the time or of the bandwidth, whichever is larger."""
        return max(self.copying, self.sampled_share)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding for the more used direction if it is in use for LINK_FULL of the step."""
    link = link_of(context.rank.gpu.name, "host") if context.rank.gpu is not None else None
    use = max((_use(context, direction, link) for direction in (FROM_HOST, TO_HOST)), key=lambda use: use.share)
    if use.copying >= LINK_FULL:
        yield _by_copies(context, use, link)
    elif use.sampled_share >= LINK_FULL and link is not None:
        title = f"The link to the host is full: {use.sampled / 1e9:.3g} of the {link.gb_s:g} GB/s of {link.name} are in use {use.direction.where}"
        yield _finding(context, title, use, "Not predicted: the copies in the profiled steps are not this traffic.")


def _use(context: RuleContext, direction: Direction, link: Link | None) -> Use:
    moved = copies(context, direction.copies)
    moved = moved.where(~moved.frame["name"].str.contains("pageable", case=False))
    sampled = context.rank.telemetry.means.get(direction.column) if context.rank.telemetry is not None else None
    return Use(
        direction,
        moved,
        context.share(moved.ms),
        sampled or 0.0,
        (sampled or 0.0) / (link.gb_s * 1e9) if link is not None else 0.0,
    )


def _by_copies(context: RuleContext, use: Use, link: Link | None) -> Evidence:
    moved = use.moved
    size = float(moved.frame["bytes"].fillna(0).sum()) / max(moved.steps, 1)
    rate = size / (moved.ms / 1e3) / 1e9
    of_link = f" of the {link.gb_s:g} of {link.name}" if link is not None else ""
    lanes = "; check that it has all its lanes" if link is not None and rate < SLOW * link.gb_s else ""
    moved_what = f"{in_bytes(size)} {use.direction.where}{of_the_batch(context, moved) if use.direction is FROM_HOST else ''}"
    title = (
        f"Copies use the link to the host for {100 * use.copying:.0f} % of each step: {moved_what} at {rate:.3g} GB/s"
        f"{of_link}{lanes}"
    )
    return _finding(context, title, use, use.direction.note, ScaledOps(moved.ids, HALF))


def _finding(context: RuleContext, title: str, use: Use, note: str, *edits: Edit) -> Evidence:
    return Evidence(
        Advice(
            title,
            use.direction.action,
            note=note,
            risk="The computation on these values moves from the CPU to the GPU.",
            changes=(use.direction.change,),
        ),
        lost_ms=use.moved.ms if edits else None,
        edits=edits,
        rows=use.moved.rows(),
        places=use.moved.places(),
    )


RULE = Rule(
    "host-link-saturated",
    measure,
    reads=OF_TRACE | {"gpu_peaks", "telemetry"},
    requires=("steps",),
)
