"""Detection of evaluations and checkpoints between two training steps.

Standard library only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from .in_process.shared import process_wide, watch
from .in_process.step_phase import phase_reader


@dataclass
class BetweenSteps:
    """Counts of evaluations and of checkpoints in this process.

    An evaluation is a call of ``eval`` on a module; nested modules do not count separately. A checkpoint is a call of ``torch.save`` in the
    main thread.
    """

    evaluations: int = 0
    checkpoints: int = 0

    def phase_reader(self) -> Callable[[int], str]:
        """Return a function that returns the phase of an optimizer's mark: eval, checkpoint or train."""
        return phase_reader(partial(attrgetter("evaluations", "checkpoints"), self))

    def watch_evaluation(self, modules: Any) -> Callable[[], None]:
        """Count evaluations until the returned function is called.

        ``modules`` is torch.nn.modules.module. No other part of PyTorch needs to be imported yet.
        """
        torch = sys.modules["torch"]

        def patch(evaluate: Callable[[Any], Any], watchers: list[BetweenSteps]) -> Callable[[Any], Any]:
            def counted(model: Any) -> Any:
                compiler: Any = getattr(torch, "compiler", None)
                compiling = hasattr(compiler, "is_compiling") and compiler.is_compiling()
                if not compiling:  # While torch.compile traces, a changing count would cause a recompilation at each call.
                    for watcher in watchers:
                        watcher.evaluations += 1
                return evaluate(model)

            return counted

        return watch(modules.Module, "eval", self, patch)

    def watch_saving(self, module: Any) -> Callable[[], None]:
        """Count checkpoints until the returned function is called; ``module`` is torch or torch.serialization.

        Asynchronous saves of torch.distributed.checkpoint run in another thread and are not counted.
        """

        def patch(save: Callable[..., Any], watchers: list[BetweenSteps]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                if threading.current_thread() is threading.main_thread():
                    for watcher in watchers:
                        watcher.checkpoints += 1
                return save(*arguments, **named)

            # torch.compile must not trace the counter. It does not trace the original function either.
            counted._torchdynamo_disable = True  # type: ignore[attr-defined]
            return counted

        return watch(module, "save", self, patch)


BETWEEN_STEPS = process_wide("between_steps", BetweenSteps)  # For `sawtooth run`.
