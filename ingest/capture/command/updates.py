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
    """Whether a model update is running in this process (``within``) and an optimizer stepped in it."""

    within: bool = False
    stepped: bool = False

    def is_again(self) -> bool:
        """Note an optimizer step; return whether the running update already had one."""
        before, self.stepped = self.stepped, True
        return self.within and before

    def watch(self, engines: Any) -> Callable[[], None]:
        """Follow the updates of DeepSpeed's engines (also of pipelines) until the returned function is called.

        ``engines`` is the module deepspeed.runtime.engine.
        """

        def patch(update: Callable[..., Any], _: list[Updates]) -> Callable[..., Any]:
            def followed(*arguments: Any, **named: Any) -> Any:
                self.within, self.stepped = True, False
                try:
                    return update(*arguments, **named)
                finally:
                    self.within = False

            return followed

        return watch(engines.DeepSpeedEngine, "_take_model_step", self, patch)


UPDATES = process_wide("updates", Updates)  # for `sawtooth run`
