"""The work of a part: classified GPU operations, counted FLOPs, and modules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.classes import Classes, Signatures, classify_operations
from sawtooth.analysis.derive.flop_counts import FlopCounts, operator_flop_counts
from sawtooth.analysis.derive.modules import ModuleWork, module_work
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.analysis.derive.parts.product_rates import Decided, classes_by_rate
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED


@dataclass(frozen=True)
class ClassifiedWork:
    """Class, FLOPs and module of each GPU operation and operator of one part."""

    part: DerivedPart
    classes: Classes
    flops: FlopCounts
    modules: ModuleWork | None
    uses_tensor_cores: NDArray[np.bool_]  # By GPU operation.


@dataclass(frozen=True)
class Device:
    """The GPU: vendor, major compute capability, and FP32 peak in FLOP/s; each None if unknown."""

    vendor: str | None
    major: int | None
    fp32_flop_per_s: float | None


def work_of(part: DerivedPart, signatures: Signatures, device: Device, decided: Decided) -> ClassifiedWork:
    """Classify every GPU operation of ``part``, count FLOPs and assign operations to modules.

    ``decided`` is passed on to ``classes_by_rate``.
    """
    classes = classify_operations(part.events, signatures, device.vendor, device.major)
    flops = operator_flop_counts(part.events, signatures, classes, device.vendor)
    proven = classes_by_rate(part.events, classes, flops, device.fp32_flop_per_s, decided)
    if proven is not classes:
        classes, flops = proven, operator_flop_counts(part.events, signatures, proven, device.vendor)
    return ClassifiedWork(
        part=part,
        classes=classes,
        flops=flops,
        modules=module_work(part.events, part.facts),
        uses_tensor_cores=classes.among("tensor_cores", TENSOR_CORES_USED),
    )
