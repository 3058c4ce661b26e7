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
    return event.get("cat") in GPU


def is_call(event: Event) -> bool:
    return event.get("cat") in CALLS


def is_step(event: Event) -> bool:
    return str(event.get("name", "")).startswith("ProfilerStep#")


def is_copy(event: Event) -> bool:
    return event.get("cat") == "gpu_memcpy"


def is_operator(event: Event) -> bool:
    return event.get("cat") == "cpu_op"
