"""Words for lost time: by the ledger's cause, or by the finding that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.knowledge.owners import OUTSIDE_PROFILE, OWNER_BY_KEY
from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt

HELPS = {  # Advice against lost time without a known cause, by owner.
    "exposed_comm": "Overlap communication with computation, or send less.",
    # No advice to pin memory, because these copies are asynchronous and therefore from pinned memory.
    "exposed_memcpy": "Send fewer bytes, or copy them on a separate stream during computation.",
    "idle": CAUSE_OF["unattributed"].to_do,
    OUTSIDE_PROFILE: "Profile more steps, because the profiled steps contain no rare events, such as an evaluation or a checkpoint.",
}
OPTIMIZERS_PYTHON = (
    "The optimizer walks through its parameters in Python. Compile its step with torch.compile, or record it in a CUDA graph."
)
# Short actions for a headline, by cause or by owner. There is none for a cause that users cannot change.
ACTIONS = {
    "data_wait": "Load batches ahead",
    "allocator": "Let the allocator reuse its blocks",
    "compilation": "Compile before the steps that count",
    "blocking_copy": "Pin the memory that is copied",
    "host_compute": "Compute on the GPU instead of the CPU",
    "launch_bound": "Launch fewer kernels",
    "python_host": "Move Python work out of the loop",
    "host_sync": "Read fewer GPU values in the loop",
    "comm_wait": "Balance the ranks",
    "comm_transfer": "Overlap communication, or send less",
    "exposed_comm": "Overlap communication, or send less",
    "exposed_memcpy": "Copy less",
}
COMMUNICATION = ("comm_wait", "comm_transfer", "exposed_comm")
MIN_MENTIONED_SHARE = 0.01  # Share of a lost time. A smaller part is less than the rounding error.
NEXT_BATCH = "the DataLoader's next batch"
_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)(?: of (?:[\w.]*\.)?(\w+) object at 0x[0-9a-f]+)?>")
_LOADER = re.compile(r"enumerate\(DataLoader\)(#_\w+(\.__next__)?)?")


@dataclass(frozen=True)
class LossName:
    """A finding's name for lost time: a sentence ("It waits for …") and a phrase (after "goes to").

    ``cause`` is the ledger's cause with this name. It is None for the finding's own name.
    """

    cause: str | None
    waits_for: str
    loses_to: str


def of_finding(finding: Finding | None) -> LossName | None:
    """Return a finding's name for the lost time that it explains.

    It is None if the finding explains no lost time, or only time that the profile does not show.
    """
    if finding is None or "hidden" in finding.explains.topics or not finding.explains.causes:
        return None
    cause, own_name = finding.explains.causes[0], finding.explains.called
    if own_name is not None:
        return LossName(None, f"It waits for {own_name}.", own_name)
    return LossName(cause, waits_for(cause), CAUSE_OF[cause].loses_to)


def waits_for(cause: str | None) -> str:
    """Return what a mostly idle GPU waits for, as a sentence."""
    return (cause is not None and CAUSE_OF[cause].waits_for) or "It is idle for the rest of the time."


def loses_to(owner: str, cause: str | None) -> str:
    """Return where lost time goes, as a phrase."""
    if owner == OUTSIDE_PROFILE:
        return "time outside the profiled steps"
    if cause is None or (cause == "unattributed" and owner != "idle"):
        return OWNER_BY_KEY[owner].loses_to or OWNER_BY_KEY[owner].label
    return CAUSE_OF[cause].loses_to


def transfer_suffix(owner: str, cause: str | None, ms: float, transfer_ms: float) -> str:
    """Return a suffix for ``ms`` of lost time in which the GPU transfers data for ``transfer_ms``.

    It is "" if it hardly does.
    """
    if transfer_ms < MIN_MENTIONED_SHARE * ms:
        return ""
    if transfer_ms > (1 - MIN_MENTIONED_SHARE) * ms:
        return ", part of its busy time"
    activity = "communicating" if (cause or owner) in COMMUNICATION else "copying" if cause else "copying or communicating"
    return f", {fmt.duration_ms(transfer_ms)} of it {activity}"


def place(name: str) -> str:
    """Return a place in the trace, or a sentence with a place, with short names.

    PyTorch's name for the wait in a DataLoader, for example, has 50 characters of class names.
    """
    return _BUILT_IN.sub(_short_name, _LOADER.sub(NEXT_BATCH, readable_frame(name)))


def _short_name(built_in: re.Match[str]) -> str:
    function, owner = built_in[1], built_in[2]
    return function if owner in (None, "type", "module") else f"{owner}.{function}"


def helps(owner: str, cause: str | None, phase: str | None = None) -> str:
    """Return what to change about lost time.

    Advice may be more specific if all of it is in one ``phase`` of the step.
    """
    if (cause, phase) == ("python_host", "optimizer"):
        return OPTIMIZERS_PYTHON
    is_known = cause is not None and (cause != "unattributed" or owner == "idle")
    return CAUSE_OF[cause].to_do if is_known and cause is not None else HELPS[owner]


def action(owner: str, cause: str | None) -> str | None:
    """Return the short action against lost time; None without advice."""
    is_known = cause is not None and cause != "unattributed"
    return ACTIONS.get(cause if is_known and cause is not None else owner)
