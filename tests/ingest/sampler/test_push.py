"""Tests of pushing sessions to a fake server, also over an unreliable network."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler.push import Push, available_on_disk
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.push_receiver import PushReceiver
from tests.support.sampler_bench import recorded


def make_push(folder: Path, token: str = "T", **options: Any) -> Push:
    """Return a push of ``folder`` whose clock, network or synced bytes ``options`` may replace."""
    options = {"available": lambda: available_on_disk(folder), "clock": FakeClock().clock(), **options}
    return Push(folder, "http://dash:1", token, **options)


def files_of(folder: Path) -> dict[int, bytes]:
    """Return the files of a session by segment; 0 is meta.json."""
    numbered = {int(p.stem.split("-")[1]): p.read_bytes() for p in folder.glob("samples-*")}
    return {0: (folder / "meta.json").read_bytes(), **numbered}


@pytest.mark.parametrize("seed", range(12))
def test_an_unreliable_network_loses_and_duplicates_nothing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.ingest.sampler.segments.SEGMENT_BYTES", 5000)
    monkeypatch.setattr("sawtooth.ingest.sampler.push.BATCH_BYTES", 1500)
    folder = recorded(tmp_path, 3)
    server, dice, clock = PushReceiver(), random.Random(seed), FakeClock().clock()

    def send(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        chance = dice.random()
        if chance < 0.2:
            return 0, {}  # The request is lost.
        answer = server.send(method, url, body, headers)
        if chance < 0.4:
            return 0, {}  # The reply is lost, so the client sends again.
        if chance < 0.5:
            server.send(method, url, body, headers)  # The network delivers twice.
        return answer

    push = make_push(folder, clock=clock, send=send)
    for _ in range(3000):
        if push.drained():
            break
        if dice.random() < 0.02:  # The sampler is killed and starts again with --resume-push.
            push = make_push(folder, clock=clock, send=send)
        push.step()
    assert {n: bytes(b) for n, b in server.received[folder.name].items()} == files_of(folder)


def test_only_synced_complete_lines_are_sent(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 2)
    server = PushReceiver()
    content = (folder / "samples-0001.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    synced = len(lines[0] + lines[1]) + 50  # The third line is only partly on the disk.
    sizes = {0: (folder / "meta.json").stat().st_size, 1: synced}
    push = make_push(folder, available=lambda: sizes, send=server.send)
    for _ in range(5):
        push.step()
    assert bytes(server.received[folder.name][1]) == lines[0] + lines[1]


def test_push_backs_off_and_reports_the_reason(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 1)
    push = make_push(folder, token="wrong", send=PushReceiver().send)
    assert push.step() == 60.0 and push.state.trouble == "the dashboard does not accept the token"
    push = make_push(folder, send=lambda *_: (0, {}))
    assert [push.step() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert push.state.trouble == "the dashboard cannot be reached"


def test_clock_offset_is_measured(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 1)
    # The wall clock of this host is at 4 s, and the receiver's clock is always at 5 s.
    push = make_push(folder, clock=FakeClock(4_000_000_000).clock(), send=PushReceiver().send)
    push.step()
    assert push.state.offset_ns == 1_000_000_000


def test_push_while_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = PushReceiver()
    monkeypatch.setattr(command, "Push", partial(Push, send=server.send))
    arguments = ["--out", str(tmp_path), "--seconds", "0.3", "--interval", "0.05", "--push", "http://dash:1", "--token", "T"]
    nvml = FakeNvml(FakeClock())
    nvml.cost_s["nvmlGpmSampleGet"] = 0.1
    assert command.main(arguments, nvml=nvml) == 0
    (folder,) = tmp_path.iterdir()
    assert {n: bytes(b) for n, b in server.received[folder.name].items()} == files_of(folder)
    assert json.loads(bytes(server.received[folder.name][0]))["session"] == folder.name
