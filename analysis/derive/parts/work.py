"""What each GPU operation and operator of a part is: classified, counted, given to its module."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.classes import Classes, Signatures, classify_operations
from sawtooth.analysis.derive.flop_counts import FlopCounts, operator_flop_counts
from sawtooth.analysis.derive.modules import ModuleWork, module_work
from sawtooth.analysis.derive.parts.part import Part
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED


@dataclass(frozen=True)
class Work:
    """What each GPU operation and operator of one part is."""

    part: Part
    classes: Classes
    flops: FlopCounts
    modules: ModuleWork | None
    tensor: NDArray[np.bool_]  # by GPU operation: it uses tensor cores


def work_of(part: Part, signatures: Signatures, vendor: str | None, major: int | None) -> Work:
    """Classify every GPU operation of ``part``, which ran on a GPU of that vendor and major compute capability, and what launched it."""
    classes = classify_operations(part.events, signatures, vendor, major)
    tensor = classes.among("tensor_cores", TENSOR_CORES_USED)
    return Work(
        part=part,
        classes=classes,
        flops=operator_flop_counts(part.events, signatures, tensor, vendor),
        modules=module_work(part.events, part.facts),
        tensor=tensor,
    )
