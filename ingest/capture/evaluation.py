"""When a training sets its model to evaluate: what it does then lies between two steps, and is part of neither. Standard library only."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Evaluations:
    """How often modules of this process were set to evaluate, a module within another not by itself."""

    count: int = 0

    def since_last(self) -> Callable[[int], bool]:
        """Return what tells whether there was one since it was asked before about the same optimizer."""
        before: dict[int, int] = {}
        began = self.count

        def since(optimizer: int) -> bool:
            count = self.count
            changed = before.get(optimizer, began) != count
            before[optimizer] = count
            return changed

        return since

    def watch(self, modules: Any) -> Callable[[], None]:
        """Count until what is returned is called; ``modules`` is the module torch.nn.modules.module, which may be all of PyTorch that is imported yet."""
        module, torch = modules.Module, sys.modules["torch"]
        evaluate = module.eval

        @functools.wraps(evaluate)
        def counted(model: Any) -> Any:
            compiler: Any = getattr(torch, "compiler", None)
            compiling = hasattr(compiler, "is_compiling") and compiler.is_compiling()
            if not compiling:  # a count would compile its function anew each time
                self.count += 1
            return evaluate(model)

        def leave() -> None:
            if module.eval is counted:  # whoever replaced it since then has it
                module.eval = evaluate

        module.eval = counted
        return leave


EVALUATIONS = Evaluations()  # of this process, for `sawtooth run`
