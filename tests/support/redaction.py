"""Redacted files."""

from __future__ import annotations

import gzip
from pathlib import Path

from sawtooth.ingest.runs.redact import Redactor


def redacted(tmp_path: Path, text: str) -> str:
    source, target = tmp_path / "s.json", tmp_path / "t.gz"
    source.write_text(text)
    Redactor().source(source, target)
    return gzip.decompress(target.read_bytes()).decode()
