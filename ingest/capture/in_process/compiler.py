"""Keep torch.compile from compiling the recorder's own functions.

If a compiled function cannot be one graph, Dynamo compiles each function that it calls. Dynamo would compile a function of the recorder
again whenever a count in the function changes, and would warn about clocks. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# Dynamo ends a graph at a call of a skipped function. So capture/between_steps.py and the changes of `sawtooth try` are not listed, because
# the training's graph must include their patches.
NOT_COMPILED = ("loop/", "capture/in_process/", "capture/command/", "capture/attach/", "capture/batches.py", "capture/marks.py")


def leave_out_recorder(rules: Any) -> Callable[[], None]:
    """Make Dynamo skip the files in NOT_COMPILED; return a function that ends this.

    ``rules`` is the module torch._dynamo.trace_rules.
    """
    folder = Path(__file__).parents[2].as_posix()
    added = [f"{folder}/{part}" for part in NOT_COMPILED]
    rules.SKIP_DIRS.extend(added)
    rules._recompile_re()

    def undo() -> None:
        rules.SKIP_DIRS[:] = [part for part in rules.SKIP_DIRS if part not in added]
        rules._recompile_re()

    return undo
