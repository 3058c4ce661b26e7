"""What lost time goes to, in words: by the ledger's cause, or by the finding that explains it."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.run_result import Finding

_WAITS_FOR = {
    "data_wait": "It waits for the data loader.",
    "host_sync": "The host keeps waiting for the device and cannot queue ahead.",
    "blocking_copy": "It waits for copies that block the host.",
    "allocator": "It waits for device memory to be allocated and freed.",
    "compilation": "It waits for code to be compiled.",
    "launch_bound": "It waits for the host to launch kernels.",
    "python_host": "It waits for Python on the host.",
    "comm_wait": "It waits for another rank or stream.",
    "comm_transfer": "It waits for data from other GPUs.",
}
_LOSES_TO = {
    "data_wait": "waiting for the data loader",
    "host_sync": "synchronization with the host",
    "blocking_copy": "copies that block the host",
    "allocator": "allocating and freeing device memory",
    "compilation": "compilation",
    "launch_bound": "the host launching kernels",
    "python_host": "Python on the host",
    "comm_wait": "waiting for another rank or stream",
    "comm_transfer": "communication that nothing overlaps",
    "launch_latency": "the latency between launches",
    "profiler": "the profiler itself",
    "unattributed": "waiting that the trace does not explain",
}
# What the finding of a rule calls the time it owns: a cause of the ledger, or words where that cause is no more than the mechanism.
_FINDING_NAMES = {
    "allocator-churn": "allocator",
    "boolean-mask-waits": "boolean masks, whose size the host waits for",
    "checkpoint-in-the-loop": "checkpoints in the loop",
    "convolution-search": "cuDNN's search for convolution algorithms",
    "data-loader-starves-gpu": "data_wait",
    "garbage-collection": "Python's garbage collection",
    "host-waits-for-gpu": "host_sync",
    "launch-bound": "launch_bound",
    "pageable-copies": "blocking_copy",
    "python-between-operators": "python_host",
    "recompilation": "compilation",
    "tensors-made-on-cpu": "tensors made on the CPU",
    "workers-start-again": "loader workers that start anew",
}
_OWNER_LOSES_TO = {
    "idle": "the GPU standing idle",
    "exposed_memcpy": "copies that nothing overlaps",
    "exposed_comm": "communication that nothing overlaps",
}


@dataclass(frozen=True)
class Named:
    """What a finding calls the time it owns: a sentence (it waits for …) and a phrase (goes to …). ``cause`` is the ledger's, or its own."""

    cause: str
    waits_for: str
    loses_to: str


def of_finding(finding: Finding | None) -> Named | None:
    """Return what a finding calls the time it owns; None where it speaks of no lost time."""
    name = _FINDING_NAMES.get(finding.rule) if finding is not None else None
    if name is None:
        return None
    return Named(name, _WAITS_FOR.get(name, f"It waits for {name}."), _LOSES_TO.get(name, name))


def waits_for(cause: str | None) -> str:
    """Return what a GPU waits for that does little else."""
    return _WAITS_FOR.get(cause or "", "The rest of the time it stands idle.")


def loses_to(owner: str, cause: str | None) -> str:
    """Return what lost time goes to."""
    if cause == "unattributed" and owner != "idle":
        return _OWNER_LOSES_TO.get(owner, owner)
    return _LOSES_TO.get(cause or "", _OWNER_LOSES_TO.get(owner, owner))
