"""Tests of errors before the sampler starts, and of the printed address."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler import options
from sawtooth.ingest.sampler.push import Push
from sawtooth.ingest.schema import DataFolder
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.servers import free_port


def gpus() -> FakeNvml:
    nvml = FakeNvml(FakeClock())
    nvml.cost_s["nvmlGpmSampleGet"] = 0.1  # The fake clock advances only by the cost of calls.
    return nvml


def test_closed_port_is_an_error_before_the_command_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, marker = f"http://127.0.0.1:{free_port()}", tmp_path / "marker"
    touch = [sys.executable, "-c", f"open({str(marker)!r}, 'w')"]
    start_s = time.monotonic()
    arguments = ["--out", str(tmp_path / "out"), "--push", url, "--token", "T", "--", *touch]
    assert command.main(arguments, nvml=gpus()) == 2
    assert time.monotonic() - start_s < 1.0
    assert f"cannot be reached at {url}" in capsys.readouterr().err
    assert not marker.exists()


def test_missing_nvml_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert command.main(["--out", str(tmp_path / "out"), "--seconds", "1"]) == 2
    message = capsys.readouterr().err
    assert "nvidia-ml-py is not installed" in message and "pip install nvidia-ml-py" in message


@pytest.mark.parametrize(
    ("status", "code", "text"), [(401, 2, "does not accept the token"), (200, 0, "watch it at http://d:1/live")]
)
def test_token_is_checked_before_sampling(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    code: int,
    text: str,
) -> None:
    def send(method: str, url: str, body: bytes | None, headers: Any) -> tuple[int, dict[str, Any]]:
        size = int(url.rpartition("=")[2]) + len(body) if body is not None else 0
        return status, {"segments": {}, "size": size}

    monkeypatch.setattr(command, "Push", partial(Push, send=send))
    arguments = ["--out", str(tmp_path), "--seconds", "0.2", "--push", "http://d:1", "--token", "T"]
    assert command.main(arguments, nvml=gpus()) == code
    assert text in capsys.readouterr().err


def test_push_token_sources_and_the_warning_about_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAWTOOTH_PUSH_TOKEN", "from-the-environment")
    (tmp_path / "push_token").write_text("from-the-file  0123abcd\n")  # The server writes this form.
    for arguments, token in (
        ([], "from-the-environment"),
        (["--token-file", str(tmp_path / "push_token")], "from-the-file"),
        (["--token", "given"], "given"),
    ):
        assert options.find_push_token(options.build_parser().parse_args(arguments)) == token
    assert command.main(["--token", "given", "--speed", "0"]) == 2
    assert "process list" in capsys.readouterr().err
    assert command.main(["--push", "http://d:1", "--token-file", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_jsonl_file_can_be_ingested(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    assert command.main(["-o", str(out), "--seconds", "0.3", "--interval", "0.05"], nvml=gpus()) == 0
    (run,) = ingest_into_runs(DataFolder(tmp_path / "data").create(), [(out, out.name)]).runs
    assert [ref.kind for ref in run.recordings] == ["telemetry"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--push", "http://d"], "needs the push token"),
        (["--push", "dashboard:8501", "--token", "T"], "such as https://"),
        (["--resume-push", "x"], "needs --push"),
        (["--interval", "0.001"], "at least 0.02 s"),
        (["--prometheus", "here"], "needs a port"),
    ],
)
def test_wrong_options_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAWTOOTH_TOKEN", raising=False)
    monkeypatch.delenv("SAWTOOTH_PUSH_TOKEN", raising=False)
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err
