"""The purpose of an allocation, from its stack: a category, a module and the user's own line.

A stack is the allocator's list of frames, innermost first. It has Python frames, and C++ frames without a .py file. The thread of
autograd has no Python frames, except for hooks and functions of the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.knowledge.frames import is_user_line

ALLOCATED_BEFORE = "allocated before the recording"
NO_STACK = "unknown: recorded without stacks"
OPTIMIZER = re.compile(
    r"[/\\]torch[/\\]optim[/\\]|[/\\](bitsandbytes[/\\]optim|apex[/\\]optimizers|deepspeed[/\\]ops[/\\]adam)[/\\]"
)
SHARDED = re.compile(r"[/\\]distributed[/\\](fsdp|_composable)[/\\]|[/\\]deepspeed[/\\]runtime[/\\]zero[/\\]")
REDUCES = re.compile(r"reduce|post_backward|grad")
DISTRIBUTED = re.compile(r"[/\\]torch[/\\]distributed[/\\]|[/\\]deepspeed[/\\]|[/\\]megatron[/\\]core[/\\]tensor_parallel")
BACKWARD_CODE = re.compile(r"torch::autograd::(Engine|Node|generated)|AccumulateGrad|Backward\d*::apply|_engine_run_backward")
NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+Backward\d*)::apply")  # Matches an autograd node, such as MmBackward0.
MODULE_INIT = frozenset(
    {"__init__", "reset_parameters", "_apply", "convert", "to_empty", "load_state_dict", "_load_from_state_dict"}
)
COPY = re.compile(r"_to_copy|copy_kernel|at::native::to\b")
TORCH_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\](\w+)\.py$")
MAX_TEXT = 400  # Limit of characters of a name. Mangled C++ names have thousands.


@dataclass(frozen=True)
class Frame:
    """A frame of a stack."""

    name: str
    file: str
    line: int

    @property
    def python(self) -> bool:
        """Whether the frame is Python code, also in a notebook or in compiled text."""
        return self.file.endswith(".py") or self.file.startswith("<")

    @property
    def short_file(self) -> str:
        """The file's name without its folders."""
        return re.split(r"[/\\]", self.file)[-1]

    @property
    def known_as(self) -> str:
        """The frame in the profiler's form, such as "train.py(12): forward"."""
        return f"{self.file}({self.line}): {self.name}"


@dataclass(frozen=True)
class Purpose:
    """The purpose of an allocation, with the user's innermost line and module ("" if unknown)."""

    category: str
    module: str = ""
    line: str = ""


def frames_of(raw: Any) -> list[Frame]:
    """Return the frames of a stack from a dump; entries that are not frames are left out."""
    frames = []
    for entry in raw if isinstance(raw, Sequence) and not isinstance(raw, str | bytes) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("filename"), str):
            line = entry.get("line")
            frames.append(Frame(entry["name"][:MAX_TEXT], entry["filename"][:MAX_TEXT], line if isinstance(line, int) else 0))
    return frames


def purpose_of(frames: Sequence[Frame], *, lasts: bool, range_name: str = "", stacks_recorded: bool = True) -> Purpose:
    """Return the purpose of an allocation with this stack.

    ``lasts`` means that it is not freed in the recording. ``range_name`` is the annotation around it, which contains the module of
    a sharded parameter.
    """
    if not frames:
        # If only Python stacks are recorded, stacks of autograd's thread are empty.
        return Purpose("backward, without a Python stack" if stacks_recorded else NO_STACK)
    python = [frame for frame in frames if frame.python]
    node = next((match.group(1) for frame in frames if (match := NODE.search(frame.name))), "")
    module, line = _module(python, range_name) or node, _user_line(python) or node
    return Purpose(_category(frames, python, lasts), module, line)


def _category(frames: Sequence[Frame], python: Sequence[Frame], lasts: bool) -> str:
    in_backward = any(BACKWARD_CODE.search(frame.name) for frame in frames) or any(
        frame.name == "backward" and not is_user_line(frame.known_as) for frame in python
    )
    if any(OPTIMIZER.search(frame.file) for frame in python):
        return "optimizer state" if lasts else "temporary memory of the optimizer"
    if any("c10d::Reducer" in frame.name for frame in frames):
        return "gradient buckets (DDP)"
    if sharded := [frame for frame in python if SHARDED.search(frame.file)]:
        inner = sharded[
            : next((i for i, f in enumerate(sharded) if "forward" in f.name or "backward" in f.name), len(sharded)) + 1
        ]
        reduces = any(REDUCES.search(frame.name) for frame in inner)
        if _forward_below(python, sharded[-1]):
            return "activations"
        return "gradients being reduced (sharded)" if reduces else "gathered parameters (sharded)"
    recomputes = any(frame.file.endswith("checkpoint.py") and "torch" in frame.file for frame in python)
    forward = any(frame.name in ("forward", "_call_impl") for frame in python)
    if in_backward:
        return "recomputed activations" if recomputes and forward else _backward_category(frames)
    if forward:
        return "activations"
    if any(DISTRIBUTED.search(frame.file) for frame in python):
        return "communication buffers"
    if any(frame.name in MODULE_INIT for frame in python):
        return "parameters and buffers"
    if any(COPY.search(frame.name) for frame in frames):
        return "copies to the GPU, such as batches"
    return "other code"


def _forward_below(python: Sequence[Frame], outermost_hook: Frame) -> bool:
    """Return whether a hook of the sharding called a module's own forward."""
    inside = python[: python.index(outermost_hook)]
    first_hook = next((i for i, frame in enumerate(inside) if SHARDED.search(frame.file)), len(inside))
    return any(frame.name == "forward" for frame in inside[:first_hook])


def _backward_category(frames: Sequence[Frame]) -> str:
    return "gradients" if any("AccumulateGrad" in frame.name for frame in frames) else "temporary memory of backward"


def _module(python: Sequence[Frame], range_name: str) -> str:
    """Return the innermost module: its name from the annotation, else the place of its forward function."""
    if "(" in range_name and range_name.endswith(")"):
        return range_name[range_name.rindex("(") + 1 : -1]
    for frame in python:
        if match := TORCH_MODULE.search(frame.file):
            if match.group(1) != "module":
                return f"nn.{match.group(1)}"
        elif frame.name == "forward":
            return f"{frame.short_file}:{frame.line}"
    return ""


def _user_line(python: Sequence[Frame]) -> str:
    user_frame = next((frame for frame in python if is_user_line(frame.known_as)), None)
    return f"{user_frame.name} ({user_frame.short_file}:{user_frame.line})" if user_frame is not None else ""
