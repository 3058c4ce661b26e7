"""Tests of the end of a process after a profile. Kineto may wait forever for a CUDA call there."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from sawtooth.ingest.capture.in_process import kineto
from sawtooth.ingest.capture.in_process.kineto import DETACH, DETACH_CALLS, ONE_CALL_AFTER_S, Detaching


class CudaCalls:
    def __init__(self, initialized: bool = True) -> None:
        self.count = 0
        self.cuda = SimpleNamespace(
            is_initialized=lambda: initialized, current_stream=lambda: SimpleNamespace(query=self._query)
        )

    def _query(self) -> bool:
        self.count += 1
        return False


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> CudaCalls:
    torch = CudaCalls()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv(DETACH, "restored afterwards")
    monkeypatch.delenv(DETACH)
    monkeypatch.setattr(kineto, "DETACH_PAUSE_S", 0.0)
    monkeypatch.setattr(kineto.atexit, "register", lambda act: None)
    return torch


def test_a_profile_that_runs_at_exit_leaves_cupti_attached(calls: CudaCalls) -> None:
    detaching = Detaching()
    detaching.begin()
    assert os.environ[DETACH] == "1"

    detaching.before_exit()

    assert os.environ[DETACH] == "0"  # Kineto reads the variable when the profile ends.
    assert calls.count == 0


@pytest.mark.parametrize(("after_s", "expected"), [(0.5 * ONE_CALL_AFTER_S, DETACH_CALLS), (2 * ONE_CALL_AFTER_S, 1)])
def test_cuda_calls_let_kineto_detach_before_exit(calls: CudaCalls, after_s: float, expected: int) -> None:
    now = [100.0]
    detaching = Detaching(clock=lambda: now[0])
    detaching.begin()
    detaching.end()
    now[0] += after_s

    detaching.before_exit()

    assert calls.count == expected


@pytest.mark.parametrize("initialized", [True, False])
def test_a_process_without_profile_or_cuda_makes_no_cuda_call(
    calls: CudaCalls, monkeypatch: pytest.MonkeyPatch, initialized: bool
) -> None:
    torch = CudaCalls(initialized)
    monkeypatch.setitem(sys.modules, "torch", torch)
    detaching = Detaching()
    if not initialized:
        detaching.begin()
        detaching.end()

    detaching.before_exit()

    assert torch.count == 0


def test_a_forked_process_makes_no_cuda_call(calls: CudaCalls) -> None:
    detaching = Detaching()
    detaching.begin()
    detaching.end()
    detaching.forget()

    detaching.before_exit()

    assert calls.count == 0
