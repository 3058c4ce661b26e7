"""Hand-built reinforcement learning loops, in microseconds, and loops that look like them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.anti_patterns import FLOAT, op
from tests.support.chrome_trace import ChromeTrace

UPDATE_ROWS = 128  # Rows of the batch of an update.
WIDTH, LAYERS = 64, 10
ENVIRONMENT_US = 60.0  # Time of the environment's Python code between two actions.
STEPS = 6
HOST_US = 12.0  # Host time of an operator.


def _copy(trace: ChromeTrace, at: float, to_host: bool, size: int) -> float:
    """Add a blocking copy and return the time at which the host continues."""
    name = "Memcpy DtoH (Device -> Pageable)" if to_host else "Memcpy HtoD (Pageable -> Device)"
    trace.op("aten::copy_", at, at + 14)
    trace.launch((at + 2, at + 5), (at + 6, at + 8), name, "gpu_memcpy", bytes=size)
    trace.host("cuda_runtime", "cudaStreamSynchronize", at + 6, at + 10)
    return at + 15


def _layers(trace: ChromeTrace, at: float, rows: int, count: int) -> float:
    for _ in range(count):
        at = op(trace, at, "aten::addmm", [[WIDTH], [rows, WIDTH], [WIDTH, WIDTH]], FLOAT, host_us=HOST_US)
    return at


def _pass(trace: ChromeTrace, at: float, rows: int) -> float:
    """Add one pass of the policy over ``rows`` observations, and the environment's Python code."""
    at = _copy(trace, at, to_host=False, size=4 * rows * WIDTH)
    at = op(trace, _layers(trace, at, rows, 3), "aten::argmax", [[rows, WIDTH]], FLOAT, host_us=HOST_US)
    return _copy(trace, at, to_host=True, size=8 * rows) + ENVIRONMENT_US


def _update(trace: ChromeTrace, at: float) -> float:
    """Add an update on one batch: its copy, forward pass, loss, backward pass and optimizer step."""
    at = _layers(trace, _copy(trace, at, to_host=False, size=4 * UPDATE_ROWS * WIDTH), UPDATE_ROWS, LAYERS)
    at = op(trace, at, "aten::mse_loss", [[UPDATE_ROWS], [UPDATE_ROWS]], FLOAT, host_us=HOST_US)
    start = at
    for _ in range(LAYERS):
        at = op(trace, at, "aten::mm", [[UPDATE_ROWS, WIDTH], [WIDTH, WIDTH]], FLOAT, host_us=HOST_US)
    trace.op("autograd::engine::evaluate_function: AddmmBackward0", start - 0.2, at - 0.2)
    trace.host("user_annotation", "Optimizer.step#Adam.step", at, at + 30)
    return op(trace, at + 2, "aten::_fused_adam_", [[WIDTH, WIDTH]], FLOAT, host_us=HOST_US) + 20


def acting_loop(folder: Path, *, passes: int, every: int = 1, rows: int = 4, loads: bool = False) -> list[Path]:
    """Write a loop of STEPS updates with ``passes`` passes of the policy before each ``every``-th update.

    Each pass reads ``rows`` observations. With ``loads``, it takes its batch from a data loader, as an evaluation does.
    """
    trace, at = ChromeTrace(made_for=folder.name), 0.0
    for step in range(STEPS):
        begin = at
        for _ in range(passes if step % every == 0 else 0):
            if loads:
                trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 5)
                at += 6
            at = _pass(trace, at, rows)
        at = _update(trace, at)
        trace.step(step + 1, begin, at)
    return [trace.write(folder / "trace.json")]


ACTING_LOOPS = {
    "acts_before_each_update": partial(acting_loop, passes=2, rows=1),
    "plays_in_rounds": partial(acting_loop, passes=20, every=3),
    "evaluates_in_rounds": partial(acting_loop, passes=20, every=3, rows=UPDATE_ROWS),
    "evaluates_from_a_loader": partial(acting_loop, passes=20, every=3, loads=True),
    "learns_only": partial(acting_loop, passes=0),
}
