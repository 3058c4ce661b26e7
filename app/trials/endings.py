"""Sentences about the end of a run, and about a step time that is missing."""

from __future__ import annotations

from typing import Literal

from sawtooth.app import format as fmt
from sawtooth.app.trials.output import last_line, memory_error_in
from sawtooth.ingest.capture.trials.settings import STOPPED_BY_GUARD

Ending = Literal["measured", "ended", "failed", "out_of_memory", "hung", "guarded"]
KILLED_CODES = (-9, 137)  # Exit codes of a process that the kernel killed: of the process itself, and of a shell around it.
MIN_STEPS = 20  # A step time needs ten steps after the warm-up. The warm-up can take ten steps too.
MAX_PROLONGATION = 10.0  # Evaluations or slow steps may prolong a run to this many times its requested seconds.
NO_STEP = "It ended without a training step that can be measured: Sawtooth counts the steps of PyTorch's optimizers."
FEW_STEPS = "Only {count} training steps can be measured, and about {needed} are needed. Use a larger --seconds, or let the training run longer."
LAST_LINE = " The last line of its output is: {line}"
NO_MODULE = (
    " Activate the training's environment, or write its Python before the script: sawtooth try /path/to/env/bin/python train.py"
)
NOT_LOADED = (
    "No Python process of this command loaded Sawtooth's hook. So no step was seen, and existing files were not protected. Python's "
    "options -I, -E and -S prevent loading. So does a command that starts Python with its own PYTHONPATH, in an empty environment "
    "(env -i), or in a container."
)


def outcome(
    ending: Ending, code: int | None, tail: str, *, limit_s: float, has_steps: bool, compiles: bool
) -> tuple[Ending, str]:
    """Return the ending of a run and why it failed, from its exit code and the end of its output."""
    last = last_line(tail)
    if code == STOPPED_BY_GUARD or ending == "guarded":
        return "guarded", ""
    if ending == "hung":
        event = "No step ended" if has_steps else "The first step did not end"
        unfinished = " The change compiles the model. The compilation did not end either." if compiles and not has_steps else ""
        return ending, f"{event} within {fmt.duration_ns(limit_s * 1e9)}, so the run was ended.{unfinished}"
    if ending == "failed":
        if (memory_error := memory_error_in(tail)) is not None:
            return "out_of_memory", memory_error
        if code in KILLED_CODES:
            return "out_of_memory", "The system killed the training (SIGKILL), as it does when memory runs out."
        if not last:
            return ending, f"The training ended with exit code {code}."
        advice = NO_MODULE if last.startswith("ModuleNotFoundError") else ""
        return ending, f"The training ended with exit code {code}: {last}{advice and '.' + advice}"
    return ending, ""


def why_not_measured(steps: int, tail: str, *, is_loaded: bool) -> str:
    """Return why a run with this number of steps has no step time; ``tail`` is the end of its output."""
    if not is_loaded:
        return NOT_LOADED
    if steps:
        return FEW_STEPS.format(count=steps, needed=MIN_STEPS)
    last = last_line(tail)
    return NO_STEP + (LAST_LINE.format(line=last) if last else "")
