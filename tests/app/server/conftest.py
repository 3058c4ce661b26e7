"""A data folder of which no session is cached."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.app.server import sessions as stored_sessions
from sawtooth.ingest.schema import DataFolder


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    stored_sessions.sessions_of.cache_clear()
    return DataFolder(tmp_path).create()
