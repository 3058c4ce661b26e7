"""Fixtures of the timeline's tests: recordings that all tests of a run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sawtooth.analysis.store.library import Recording
from tests.support import findings_of as common
from tests.support.paths import RECORDINGS, SAMPLES


@pytest.fixture(scope="module")
def gpt() -> Iterator[Recording]:
    """Yield a recording with more operations than a tile shows one by one: 5,818 on the GPU."""
    with common.library().open(common.recording_of(SAMPLES / "gpt" / "trace.json.gz")) as recording:
        yield recording


@pytest.fixture(scope="module")
def stacks() -> Iterator[Recording]:
    with common.library().open(common.recording_of(RECORDINGS / "gpt_reads_stack" / "trace.json.gz")) as recording:
        yield recording
