"""Lines that strangers can have written: each of them once in a while, with how many came between."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_SECONDS = 10.0
TEXTS_MOST = 100  # remembered; uvicorn has three such lines
LOGGERS = ("uvicorn.error", "websockets.server")  # what they say of requests that are none comes before any middleware


class Seldom(logging.Filter):
    """Lets a warning of one wording through once in EVERY_SECONDS; errors always."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the line is written; the next one that is says how many were not."""
        if record.levelno != logging.WARNING:
            return True
        if len(self._seen) > TEXTS_MOST:
            self._seen.clear()
        text, now = str(record.msg), self._clock()
        last, left_out = self._seen.get(text, (float("-inf"), 0))
        if now - last < EVERY_SECONDS:
            self._seen[text] = last, left_out + 1
            return False
        self._seen[text] = now, 0
        if left_out:
            record.msg = f"{text} ({left_out} more since the last such line)"
        return True


def limit_lines() -> None:
    """Limit what the server's libraries write of requests that are none."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Seldom) for one in logger.filters):
            logger.addFilter(Seldom())
