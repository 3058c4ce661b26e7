"""What has to be done before os._exit, which runs nothing that waits for the end of a process. Standard library only."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NoReturn


def before_leaving(act: Callable[[], None]) -> None:
    """Have os._exit call ``act`` first."""
    leave = os._exit

    @functools.wraps(leave)
    def act_and_leave(status: int) -> NoReturn:
        act()
        leave(status)

    os._exit = act_and_leave
