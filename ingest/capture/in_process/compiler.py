"""Keep torch.compile from compiling the recorder's own functions.

If a compiled function cannot be one graph, Dynamo compiles each function that it calls. It would compile the recorder's functions
again whenever one of their counts changes, and would warn about their clocks. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# capture/between_steps.py is not listed, because its patch of ``eval`` must not break the training's graph. For the same reason, the
# changes of `sawtooth try` are not listed.
NOT_COMPILED = ("loop/", "capture/in_process/", "capture/command/", "capture/attach/", "capture/batches.py", "capture/marks.py")


def leave_out_recorder(rules: Any) -> Callable[[], None]:
    """Make Dynamo skip the files in NOT_COMPILED; return a function that ends this.

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
