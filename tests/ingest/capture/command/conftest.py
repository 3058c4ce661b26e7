"""Fixtures of the tests of `sawtooth run`."""

from pathlib import Path

import pytest

from sawtooth.ingest.capture.command import telemetry


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the sampler by one that has taken a sample, on every machine."""

    def stop_and_write(_process: object, _live: Path, target: Path) -> None:
        target.write_text("{}\n")

    monkeypatch.setattr(telemetry.sampler_process, "start_sampler", lambda live, *more: object())
    monkeypatch.setattr(telemetry.sampler_process, "wait_for_start", lambda process, live, limit_s: True)
    monkeypatch.setattr(telemetry.sampler_process, "stop_and_write", stop_and_write)
