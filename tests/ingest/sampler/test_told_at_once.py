"""What cannot work is said before anything is sampled or run, and where to watch is printed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler import options
from sawtooth.ingest.sampler.push import Push
from sawtooth.ingest.schema import DataFolder
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.servers import free_port


def gpus() -> FakeNvml:
    nvml = FakeNvml(FakeClock())
    nvml.cost_s["nvmlGpmSampleGet"] = 0.1  # its clock passes only by what calls cost
    return nvml


def test_a_closed_port_is_an_error_in_the_first_second_and_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, ran = f"http://127.0.0.1:{free_port()}", tmp_path / "ran"
    touch = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    began = time.monotonic()
    arguments = ["--out", str(tmp_path / "out"), "--push", url, "--token", "T", "--", *touch]
    assert command.main(arguments, nvml=gpus()) == 2
    assert time.monotonic() - began < 1.0
    assert f"cannot be reached at {url}" in capsys.readouterr().err
    assert not ran.exists()


def test_where_the_package_of_nvml_is_missing_its_name_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert command.main(["--out", str(tmp_path / "out"), "--seconds", "1"]) == 2
    said = capsys.readouterr().err
    assert "nvidia-ml-py is not installed" in said and "pip install nvidia-ml-py" in said


@pytest.mark.parametrize(
    ("status", "code", "words"), [(401, 2, "does not accept the token"), (200, 0, "watch it at http://d:1/live")]
)
def test_a_wrong_token_is_an_error_and_a_right_one_says_where_to_watch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    code: int,
    words: str,
) -> None:
    def send(method: str, url: str, body: bytes | None, headers: Any) -> tuple[int, dict[str, Any]]:
        size = int(url.rpartition("=")[2]) + len(body) if body is not None else 0
        return status, {"segments": {}, "size": size}

    monkeypatch.setattr(Push.__init__, "__kwdefaults__", {**(Push.__init__.__kwdefaults__ or {}), "send": send})
    arguments = ["--out", str(tmp_path), "--seconds", "0.2", "--push", "http://d:1", "--token", "T"]
    assert command.main(arguments, nvml=gpus()) == code
    assert words in capsys.readouterr().err


def test_the_push_token_comes_from_a_file_or_the_environment_and_arguments_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAWTOOTH_PUSH_TOKEN", "from-the-environment")
    (tmp_path / "push_token").write_text("from-the-file  0123abcd\n")  # as the server keeps it
    for arguments, token in (
        ([], "from-the-environment"),
        (["--token-file", str(tmp_path / "push_token")], "from-the-file"),
        (["--token", "given"], "given"),
    ):
        assert options.push_token_of(options.parser().parse_args(arguments)) == token
    assert "list of processes" in capsys.readouterr().err
    assert command.main(["--push", "http://d:1", "--token-file", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_file_of_lines_is_what_ingest_reads(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    assert command.main(["-o", str(out), "--seconds", "0.3", "--interval", "0.05"], nvml=gpus()) == 0
    (run,) = bring_in(DataFolder(tmp_path / "data").create(), [(out, out.name)]).runs
    assert [ref.kind for ref in run.recordings] == ["telemetry"]
