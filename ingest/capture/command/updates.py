"""What updates a model in parts: DeepSpeed's ZeRO calls the optimizer once for each group of parameters, all of them one step. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..in_process.shared import process_wide, watch


@dataclass
class Updates:
    """The update of a whole model that is going on in this process (``within``), and whether an optimizer has stepped in it."""

    within: bool = False
    stepped: bool = False

    def is_again(self) -> bool:
        """Tell whether an optimizer has stepped before in the update that is going on, and note that one has."""
        before, self.stepped = self.stepped, True
        return self.within and before

    def watch(self, engines: Any) -> Callable[[], None]:
        """Follow the updates of DeepSpeed's engines, its pipelines' too, until what is returned is called; ``engines`` is the module deepspeed.runtime.engine."""

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
