"""What a training does between two steps that is part of neither: it sets its model to evaluate, or saves a checkpoint. Standard library only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .in_process.shared import process_wide, watch


@dataclass
class BetweenSteps:
    """How often modules of this process were set to evaluate, a module within another not by itself, and how often its main thread saved anything."""

    evaluated: int = 0
    saved: int = 0

    def since_last(self) -> Callable[[int], str]:
        """Return what tells the phase of a mark: eval or checkpoint where there was one since it was asked before about the same optimizer, else train.

        A training that evaluates and then saves its best state says so of the first.
        """
        before: dict[int, tuple[int, int]] = {}
        began = (self.evaluated, self.saved)

        def since(optimizer: int) -> str:
            evaluated, saved = before.get(optimizer, began)
            before[optimizer] = (self.evaluated, self.saved)
            return "eval" if evaluated != self.evaluated else "checkpoint" if saved != self.saved else "train"

        return since

    def watch_evaluation(self, modules: Any) -> Callable[[], None]:
        """Count until what is returned is called; ``modules`` is the module torch.nn.modules.module, which may be all of PyTorch that is imported yet."""
        torch = sys.modules["torch"]

        def patch(evaluate: Callable[[Any], Any], watchers: list[BetweenSteps]) -> Callable[[Any], Any]:
            def counted(model: Any) -> Any:
                compiler: Any = getattr(torch, "compiler", None)
                compiling = hasattr(compiler, "is_compiling") and compiler.is_compiling()
                if not compiling:  # a count would compile its function anew each time
                    for watcher in watchers:
                        watcher.evaluated += 1
                return evaluate(model)

            return counted

        return watch(modules.Module, "eval", self, patch)

    def watch_saving(self, module: Any) -> Callable[[], None]:
        """Count until what is returned is called; ``module`` is the one that ``save`` is called of, or torch.serialization before torch has it.

        torch.distributed.checkpoint saves each tensor so, in a thread of its own where it saves in the background.
        """

        def patch(save: Callable[..., Any], watchers: list[BetweenSteps]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                if threading.current_thread() is threading.main_thread():
                    for watcher in watchers:
                        watcher.saved += 1
                return save(*arguments, **named)

            counted._torchdynamo_disable = True  # type: ignore[attr-defined]  # as the hook of a step: the compiler leaves its function for PyTorch's own as well
            return counted

        return watch(module, "save", self, patch)


BETWEEN_STEPS = process_wide("between_steps", BetweenSteps)  # for `sawtooth run`
