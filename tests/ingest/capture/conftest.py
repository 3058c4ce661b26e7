"""What a test leaves behind in this process: a profiler that it never ended is not in the way of the next test."""

from collections.abc import Iterator

import pytest

from sawtooth.ingest.capture.in_process.profilers import PROFILERS


@pytest.fixture(autouse=True)
def no_profiler_is_left() -> Iterator[None]:
    yield
    PROFILERS.ours, PROFILERS.other, PROFILERS.exported = None, False, []
