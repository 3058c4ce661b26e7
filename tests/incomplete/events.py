"""Kinds of events of a trace, by which the damages choose them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Damage = Callable[[list[Event], random.Random], list[Event]]
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")


def is_gpu(event: Event) -> bool:
    """Tell whether an event is an operation of the GPU."""
    return event.get("cat") in GPU


def is_call(event: Event) -> bool:
    """Tell whether an event is a call of the runtime or the driver."""
    return event.get("cat") in CALLS


def is_step(event: Event) -> bool:
    """Tell whether an event marks a step."""
    return str(event.get("name", "")).startswith("ProfilerStep#")


def is_copy(event: Event) -> bool:
    """Tell whether an event is a copy on the GPU."""
    return event.get("cat") == "gpu_memcpy"


def is_operator(event: Event) -> bool:
    """Tell whether an event is an operator of the host."""
    return event.get("cat") == "cpu_op"
