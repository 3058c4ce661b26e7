"""The owners of a GPU's nanoseconds: one row per owner, in the order in which the ledger assigns time.

The ledger, the timeline, the tables, the comparison and the charts all read these rows; the app's theme has their colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OwnerKey = Literal["tensor_core_compute", "other_compute", "memset", "exposed_comm", "exposed_memcpy", "idle"]


@dataclass(frozen=True)
class Owner:
    """One owner; ``colour`` is a key of the theme's palette.

    ``label`` names its time in the ledger. ``work`` names an operation on a stream, which may or may not overlap with others.
    ``computes``: its kernels do the step's arithmetic. ``kernels``: a sampler of utilization counts them. ``lost``: the time is
    not computing, so it has a cause; ``loses_to`` then names the loss if the cause is not known.
    """

    key: OwnerKey
    label: str
    work: str
    meaning: str
    colour: str
    computes: bool = False
    kernels: bool = False
    lost: bool = False
    loses_to: str = ""


# If several owners' operations run at the same time, the first owner in this order gets the time.
OWNERS = (
    Owner(
        key="tensor_core_compute",
        label="tensor-core compute",
        work="tensor-core compute",
        meaning="A kernel runs that uses tensor cores, or by its inputs very likely does.",
        colour="blue",
        computes=True,
        kernels=True,
    ),
    Owner(
        key="other_compute",
        label="other compute",
        work="other compute",
        meaning="Another kernel computes, including kernels whose use of tensor cores is unknown.",
        colour="sky",
        computes=True,
        kernels=True,
    ),
    Owner(
        key="memset",
        label="memset",
        work="memset",
        meaning="Device memory is filled, by the copy engine or by a kernel made for it.",
        colour="ash",
    ),
    Owner(
        key="exposed_comm",
        label="exposed communication",
        work="communication",
        meaning="A collective runs and nothing computes at the same time.",
        colour="pink",
        kernels=True,
        lost=True,
        loses_to="communication not overlapped by compute",
    ),
    Owner(
        key="exposed_memcpy",
        label="copy not overlapped",
        work="copy",
        meaning="Memory is copied, by the copy engine or by a kernel made for it, and nothing computes at the same time.",
        colour="amber",
        lost=True,
        loses_to="copies not overlapped by compute",
    ),
    Owner(
        key="idle",
        label="idle",
        work="idle",
        meaning="Nothing runs on the device.",
        colour="stone",
        lost=True,
        loses_to="an idle GPU",
    ),
)

OWNER_BY_KEY: dict[str, Owner] = {owner.key: owner for owner in OWNERS}
OWNER_KEYS = tuple(owner.key for owner in OWNERS)
LOST_OWNERS = tuple(owner.key for owner in OWNERS if owner.lost)
COMPUTE_OWNERS = tuple(owner.key for owner in OWNERS if owner.computes)
KERNEL_OWNERS = tuple(owner.key for owner in OWNERS if owner.kernels)
AVOIDABLE = "avoidable"  # An owner in the parts of a predicted step: GPU work that the first change removes.
OUTSIDE_PROFILE = "outside_profile"  # An owner in the parts of a run's step: time that no profiled step shows.
HOST_LOADING, HOST_OPERATORS, HOST_REST = "host_loading", "host_operators", "host_rest"  # Parts of a step without GPU work.
HOST_PARTS = (HOST_OPERATORS, HOST_REST, HOST_LOADING)
TENSOR_CORES_USED = ("yes", "likely")  # Values of kernel_names.TensorCores that count as using tensor cores.


def owner_of(category: str, tensor_cores: str, kind: str = "kernel") -> OwnerKey:
    """Return the owner of a GPU operation that runs alone, from its category, tensor-core use and kind.

    Some runtimes record copies and fills as kernels; the category identifies them. Kernels with unknown tensor-core use are
    other compute.
    """
    if "memcpy" in (kind, category):
        return "exposed_memcpy"
    if "memset" in (kind, category):
        return "memset"
    if category == "communication":
        return "exposed_comm"
    return "tensor_core_compute" if tensor_cores in TENSOR_CORES_USED else "other_compute"
