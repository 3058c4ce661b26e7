"""Analyses without findings, which take half of the time or more, for tests that check only numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import Manifest


@contextmanager
def without_rules() -> Iterator[None]:
    """Leave out every rule, so that an analysis has no findings."""
    with mock.patch("sawtooth.analysis.findings.checking.all_rules", return_value=()):
        yield


def analyse_without_findings(manifest: Manifest, library: Library) -> RunResult:
    with without_rules():
        return analyse(manifest, library)
