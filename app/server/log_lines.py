"""Limit log lines that strangers can cause: repeated lines appear rarely, with their number."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_SECONDS = 10.0  # The same line is logged at most once in this time.
MAX_TEXTS = 100  # Remembered texts. Uvicorn has three different lines about invalid requests.
LOGGERS = ("uvicorn.error", "websockets.server")  # They log invalid requests before any middleware can refuse them.


class Seldom(logging.Filter):
    """A filter that lets equal warnings pass once per EVERY_SECONDS, and all other records always."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written; the next written line says how many were left out."""
        if record.levelno != logging.WARNING:
            return True
        if len(self._seen) > MAX_TEXTS:
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
    """Limit the log lines of the server's libraries about invalid requests."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Seldom) for one in logger.filters):
            logger.addFilter(Seldom())
