"""Keep torch.compile from compiling the recorder's own functions.

A compiled function that cannot be one graph runs as Python, and Dynamo then compiles each function that it calls. It would compile
the recorder's again whenever a count changes, and warn of its clocks. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# Not capture/between_steps.py: its count of evaluations must stay a part of the training's graph. Nor the changes of `sawtooth try`.
NOT_COMPILED = ("loop/", "capture/in_process/", "capture/command/", "capture/attach/", "capture/batches.py", "capture/marks.py")


def leave_out_recorder(rules: Any) -> Callable[[], None]:
    """Make Dynamo skip these files, and return a function that ends this.

    ``rules`` is the module torch._dynamo.trace_rules.
    """
    folder = Path(__file__).parents[2].as_posix()
    added = [f"{folder}/{part}" for part in NOT_COMPILED]
    rules.SKIP_DIRS.extend(added)
    rules._recompile_re()

    def leave() -> None:
        rules.SKIP_DIRS[:] = [each for each in rules.SKIP_DIRS if each not in added]
        rules._recompile_re()

    return leave
