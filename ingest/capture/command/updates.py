"""Model updates that call optimizers several times but count as one step.

DeepSpeed's ZeRO calls the optimizer once per group of parameters. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..in_process.shared import process_wide, watch


@dataclass
class Updates:
    """Whether a model update is running in this process, and whether an optimizer stepped in it."""

    is_running: bool = False
    has_step: bool = False

    def is_repeated_step(self) -> bool:
        """Note an optimizer step; return whether the running update already had a step."""
        had_step, self.has_step = self.has_step, True
        return self.is_running and had_step

    def watch(self, engines: Any) -> Callable[[], None]:
        """Follow the updates of DeepSpeed's engines (also of pipelines) until the returned function is called.

        ``engines`` is the module deepspeed.runtime.engine.
        """

        def patch(update: Callable[..., Any], _: list[Updates]) -> Callable[..., Any]:
            def noted_update(*arguments: Any, **named: Any) -> Any:
                self.is_running, self.has_step = True, False
                try:
                    return update(*arguments, **named)
                finally:
                    self.is_running = False

            return noted_update

        return watch(engines.DeepSpeedEngine, "_take_model_step", self, patch)


UPDATES = process_wide("updates", Updates)  # For `sawtooth run`.
