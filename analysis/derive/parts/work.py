"""The work of a part: classified GPU operations, counted FLOPs, and modules."""

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
    """Class, FLOPs and module of each GPU operation and operator of one part."""

    part: Part
    classes: Classes
    flops: FlopCounts
    modules: ModuleWork | None
    tensor: NDArray[np.bool_]  # by GPU operation: whether it uses tensor cores


def work_of(part: Part, signatures: Signatures, vendor: str | None, major: int | None) -> Work:
    """Classify every GPU operation of ``part``, count FLOPs and assign operations to modules.

    ``vendor`` and ``major`` (compute capability) describe the GPU.
    """
    classes = classify_operations(part.events, signatures, vendor, major)
    tensor = classes.among("tensor_cores", TENSOR_CORES_USED)
    return Work(
        part=part,
        classes=classes,
        flops=operator_flop_counts(part.events, signatures, tensor, vendor),
        modules=module_work(part.events, part.facts),
        tensor=tensor,
    )
