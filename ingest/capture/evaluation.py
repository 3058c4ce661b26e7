"""When a training sets its model to evaluate: what it does then lies between two steps, and is part of neither. Standard library only."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class Evaluations:
    """How often modules of this process were set to evaluate, a module within another not by itself."""

    count: int = 0

    def watch(self, modules: Any) -> None:
        """Count from now on; ``modules`` is the module torch.nn.modules.module, which may be all of PyTorch that is imported yet."""
        module, torch = modules.Module, sys.modules["torch"]
        evaluate = module.eval

        @functools.wraps(evaluate)
        def counted(model: Any) -> Any:
            compiler: Any = getattr(torch, "compiler", None)
            compiling = hasattr(compiler, "is_compiling") and compiler.is_compiling()
            if not compiling:  # a count would compile its function anew each time
                self.count += 1
            return evaluate(model)

        module.eval = counted
