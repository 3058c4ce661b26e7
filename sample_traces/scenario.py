"""A scenario: the construction of a loop, the length of its timing, and the steps to profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sawtooth.sample_traces.workload import Workload


@dataclass(frozen=True)
class Scenario:
    """One recording: the construction of its loop, the length of its timing, and the steps to profile."""

    planted: str
    build: Callable[..., Workload]  # Keyword arguments add to the workload's own options.
    fixed_by: str = ""  # The recording after the one change.
    change: str = ""  # The change in words.
    also: tuple[tuple[str, str], ...] = ()  # Further (recording, change) pairs.
    rules: tuple[str, ...] = ()  # Slugs of the rules that propose the change.
    cfg: dict[str, Any] = field(default_factory=dict)
    active: int = 3
    warmup: int = 3
    timed_s: float = 3.0  # Seconds for which the unprofiled, pipelined loop is timed.
    min_steps: int = 20  # Fewest steps to time.
    after_s: float = 0.0  # Seconds for which the loop is timed again after the profile; 0: a third as many steps.
    marks: bool = False  # Write a file next to the trace with the time at which the host finished each step.
    synced_steps: int = 20
    first_steps: int = 5  # Steps before anything is measured.
    profiler: dict[str, bool] = field(default_factory=dict)
    mark_steps: bool = True  # False: the profiler runs without a schedule, so the trace names no steps.
    gpus: int = 1  # Number of processes, one per GPU.
    ddp: bool = True  # False: several processes without DistributedDataParallel.
    bundled: bool = False


def scenario(
    planted: str, make: Callable[..., Workload], *sizes: Any, fixed_by: str = "", change: str = "", **options: Any
) -> Scenario:
    """Return a scenario whose workload is `make(*sizes, **options)`.

    Options with the name of a Scenario field go to the Scenario.
    """
    fields = {key: options.pop(key) for key in list(options) if key in Scenario.__dataclass_fields__ and key != "cfg"}
    cfg = {
        "workload": make.__name__,
        "sizes": [str(size) for size in sizes],
        **{key: str(value) for key, value in options.items()},
    }
    return Scenario(planted, lambda **further: make(*sizes, **options, **further), fixed_by, change, cfg=cfg, **fields)


NONE = "none"
