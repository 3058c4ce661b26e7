"""What lost time goes to, in words: by the ledger's cause, or by the finding that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.knowledge.frames import spoken
from sawtooth.analysis.knowledge.owners import OUTSIDE_PROFILE, OWNER_BY_KEY
from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt

HELPS = {  # lost time whose cause is not known, by its owner
    "exposed_comm": "Overlap communication with computation, or send less.",
    "exposed_memcpy": "Send fewer bytes, or copy them on a stream of their own, beside computation.",  # asynchronous: pinned already
    "idle": CAUSE_OF["unattributed"].to_do,
    OUTSIDE_PROFILE: "Profile more steps: what is rare, such as an evaluation or a checkpoint, is in none of these.",
}
OPTIMIZERS_PYTHON = (
    "The optimizer walks through its parameters in Python: torch.compile of its step, or a CUDA graph, takes that away."
)
ACTIONS = {  # the same as the short action of a headline, by cause, else by owner; none for what nobody can change or explain
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
WORTH_SAYING = 0.01  # of a lost time: less is lost in its rounding
NEXT_BATCH = "the DataLoader's next batch"
_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)(?: of (?:[\w.]*\.)?(\w+) object at 0x[0-9a-f]+)?>")
_LOADER = re.compile(r"enumerate\(DataLoader\)(#_\w+(\.__next__)?)?")


@dataclass(frozen=True)
class Named:
    """What a finding calls the time it owns: a sentence (it waits for …) and a phrase (goes to …).

    ``cause`` is the ledger's where the finding goes by its name, None where it has one of its own.
    """

    cause: str | None
    waits_for: str
    loses_to: str


def of_finding(finding: Finding | None) -> Named | None:
    """Return what a finding calls the time it owns; None where it speaks of no lost time, or of some that the profile does not show."""
    if finding is None or "hidden" in finding.explains.topics or not finding.explains.causes:
        return None
    cause, called = finding.explains.causes[0], finding.explains.called
    if called is not None:
        return Named(None, f"It waits for {called}.", called)
    return Named(cause, waits_for(cause), CAUSE_OF[cause].loses_to)


def waits_for(cause: str | None) -> str:
    """Return what a GPU waits for that does little else."""
    return (cause is not None and CAUSE_OF[cause].waits_for) or "It is idle for the rest of the time."


def loses_to(owner: str, cause: str | None) -> str:
    """Return what lost time goes to."""
    if owner == OUTSIDE_PROFILE:
        return "time that no profiled step shows"
    if cause is None or (cause == "unattributed" and owner != "idle"):
        return OWNER_BY_KEY[owner].loses_to or OWNER_BY_KEY[owner].label
    return CAUSE_OF[cause].loses_to


def meanwhile(owner: str, cause: str | None, ms: float, transfer_ms: float) -> str:
    """Return what is said after lost time of which the GPU is busy for ``transfer_ms``; "" where that is too little to be seen."""
    if transfer_ms < WORTH_SAYING * ms:
        return ""
    if transfer_ms > (1 - WORTH_SAYING) * ms:
        return ", part of its busy time"
    does = "communicating" if (cause or owner) in COMMUNICATION else "copying" if cause else "copying or communicating"
    return f", {fmt.duration_ms(transfer_ms)} of it {does}"


def place(name: str) -> str:
    """Return a place in the trace, or a sentence with it, as people call it: PyTorch's name for the wait in a DataLoader is 50 characters of its classes."""
    return _BUILT_IN.sub(
        lambda of: of[1] if of[2] in (None, "type", "module") else f"{of[2]}.{of[1]}", _LOADER.sub(NEXT_BATCH, spoken(name))
    )


def helps(owner: str, cause: str | None, phase: str | None = None) -> str:
    """Return what to change about lost time; a ``phase`` of the step in which all of it lies knows better."""
    if (cause, phase) == ("python_host", "optimizer"):
        return OPTIMIZERS_PYTHON
    known = cause is not None and (cause != "unattributed" or owner == "idle")
    return CAUSE_OF[cause].to_do if known and cause is not None else HELPS[owner]


def action(owner: str, cause: str | None) -> str | None:
    """Return the short action against lost time; None where nothing says what it is."""
    known = cause is not None and cause != "unattributed"
    return ACTIONS.get(cause if known and cause is not None else owner)
