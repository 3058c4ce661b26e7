"""Limit log lines that anybody on the network can cause: repeated lines appear rarely."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

MIN_INTERVAL_S = 10.0  # Time between two equal lines.
MAX_TEXTS = 100  # Remembered texts. Uvicorn has three different lines about invalid requests.
LOGGERS = ("uvicorn.error", "websockets.server")  # They log invalid requests before any middleware can refuse them.


class RepeatFilter(logging.Filter):
    """A filter that lets a warning pass once per MIN_INTERVAL_S, and all other records always."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._written: dict[str, tuple[float, int]] = {}  # By text: time of the last line, and number of lines since.

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written; the next written line says how many lines were left out."""
        if record.levelno != logging.WARNING:
            return True
        if len(self._written) > MAX_TEXTS:
            self._written.clear()
        text, now = str(record.msg), self._clock()
        last, left_out = self._written.get(text, (float("-inf"), 0))
        if now - last < MIN_INTERVAL_S:
            self._written[text] = last, left_out + 1
            return False
        self._written[text] = now, 0
        if left_out:
            record.msg = f"{text} ({left_out} more since the last such line)"
        return True


def limit_lines() -> None:
    """Limit the log lines of the server's libraries about invalid requests."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(existing, RepeatFilter) for existing in logger.filters):
            logger.addFilter(RepeatFilter())
