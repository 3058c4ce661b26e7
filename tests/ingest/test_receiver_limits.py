"""What a leaked push token can do to others: nothing that keeps a later sampler out or makes Live read for minutes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from starlette.requests import Request

from sawtooth.app.api import live
from sawtooth.app.live import info as live_info
from sawtooth.app.live.folders import LISTED, delete_session, newest
from sawtooth.app.live.info import session_info
from sawtooth.app.server.push import push_token
from sawtooth.app.settings import Settings
from sawtooth.ingest import receiver
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.receiver import MAX_META_BYTES, Receiver, RefusedError
from sawtooth.ingest.schema import DataFolder


def test_sessions_without_a_sample_make_way_for_a_sampler_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_SESSIONS", 3)
    monkeypatch.setattr(receiver, "CROWDED", 3)
    taker = Receiver(tmp_path)
    for name in ("empty", "fresh", "sampled"):
        taker.append(name, 0, 0, b"{}")
    (tmp_path / "sampled" / "samples-0001.jsonl").write_bytes(b"x")
    with pytest.raises(RefusedError, match="too many"):
        taker.append("later", 0, 0, b"{}")
    for name in ("empty", "sampled"):
        os.utime(tmp_path / name, (time.time() - 3600,) * 2)
    assert taker.append("later", 0, 0, b"{}").agreed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "later", "sampled"]


def test_pushed_sessions_have_a_quota_and_room_comes_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taker = Receiver(tmp_path)
    taker.append("one", 0, 0, b"x" * 60)
    monkeypatch.setattr(receiver, "MAX_PUSHED_BYTES", 100)
    with pytest.raises(RefusedError, match="as much of pushed sessions") as error:
        taker.append("two", 0, 0, b"x" * 60)
    assert error.value.status == 507
    delete_session(tmp_path, "one")
    assert taker.append("two", 0, 0, b"x" * 60).agreed


def test_a_session_is_deleted_whole_and_nothing_else(tmp_path: Path) -> None:
    live = tmp_path / "live"
    Receiver(tmp_path).append("live", 0, 0, b"x")
    for name in ("one", "two"):
        Receiver(live).append(name, 0, 0, b"x")
    delete_session(live, "one")
    for name in ("one", "..", "../live", "", "two/meta.json"):
        with pytest.raises(NotFoundError):
            delete_session(live, name)
    assert [path.name for path in live.iterdir() if path.is_dir()] == ["two"]


def test_a_flood_of_sessions_hides_none_that_has_newer_samples(tmp_path: Path) -> None:
    for number in range(LISTED + 50):
        (tmp_path / f"flood-{number}").mkdir()
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, when in ((old, 1_000.0), (new, 2_000.0)):
        folder.mkdir()
        (folder / "samples-0001.jsonl").write_bytes(b"x")
        os.utime(folder / "samples-0001.jsonl", (when, when))
        os.utime(folder, (when, when))
    found = newest(tmp_path)
    assert len(found) == LISTED and found[:2] == [new, old]


def test_a_meta_larger_than_any_host_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as error:
        Receiver(tmp_path).append("s", 0, 0, b"[" * (MAX_META_BYTES + 1))
    assert error.value.status == 413


def test_a_session_s_meta_is_read_once_as_long_as_it_does_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"devices": [{}], "started_w": 10**18, "name": "run", "host": None, "columns": [], "more": {"deep": [[[1]]]}}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    info = session_info(tmp_path)
    assert info is not None and (info.name, info.host, info.gpus) == ("run", "", 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("read again"))
    assert session_info(tmp_path) == info
    monkeypatch.undo()
    (tmp_path / "meta.json").write_text(json.dumps(meta | {"name": "another"}))
    assert session_info(tmp_path).name == "another"  # type: ignore[union-attr]
    (tmp_path / "meta.json").write_text("[" * 100_000)
    assert session_info(tmp_path) is None
    assert live_info.INFOS_KEPT > receiver.MAX_SESSIONS


def _pushed(session: str, options: Settings, monkeypatch: pytest.MonkeyPatch, *, trickle: bool = False) -> int:
    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": trickle}

    monkeypatch.setattr(live, "settings", lambda: options)
    monkeypatch.setattr(live, "pace", live.Pace())
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"segment=1&offset=0", "headers": []}
    request = Request(scope | {"path_params": {"session": session}}, receive)
    return asyncio.run(live.push(request)).status_code


def test_a_body_that_trickles_for_ever_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BODY_SECONDS", 0.2)
    assert _pushed("s", Settings(DataFolder(tmp_path)), monkeypatch, trickle=True) == 408


def test_a_name_that_is_no_session_s_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pushed("../" + "x" * 5000, Settings(DataFolder(tmp_path)), monkeypatch) == 404
    assert live.pace._left == {}


def test_a_flipped_bit_in_the_push_token_s_file_makes_a_new_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    old = push_token(tmp_path)
    (tmp_path / "push_token").write_bytes(bytes([ord(old[0]) | 0x80]) + old[1:].encode())
    assert push_token(tmp_path) not in ("", old) and push_token(tmp_path) == push_token(tmp_path)
