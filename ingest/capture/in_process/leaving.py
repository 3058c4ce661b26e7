"""What has to be done before os._exit, which runs nothing that waits for the end of a process. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from .shared import watch


def before_leaving(act: Callable[[], None]) -> Callable[[], None]:
    """Have os._exit call ``act`` first, until what is returned is called."""

    def patch(leave: Callable[[int], NoReturn], acts: list[Callable[[], None]]) -> Callable[[int], NoReturn]:
        def act_and_leave(status: int) -> NoReturn:
            for each in acts:
                each()
            leave(status)

        return act_and_leave

    return watch(os, "_exit", act, patch)
