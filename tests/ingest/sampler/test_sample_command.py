"""Tests of `sawtooth sample` on hosts without GPUs, of its output, and of a wrapped command."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.sampler import __main__ as command
from sawtooth.ingest.sampler.sinks import SessionSink
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.session import write_session_file
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.sampler_bench import Direct


@pytest.mark.parametrize("code", [9, 12])
def test_a_host_without_gpus_is_sampled_alone(code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    time = FakeClock()
    nvml = FakeNvml(time)
    nvml.fail[("nvmlInit", None)] = code
    assert (
        command.main(["--out", str(tmp_path / "live"), "--seconds", "9"], nvml=nvml, clock=time.clock(), caller=Direct()) == 0
    )
    assert "Only its cores, memory, disks and network are sampled" in capsys.readouterr().err
    (session,) = (tmp_path / "live").iterdir()
    write_session_file(session, tmp_path / "host.jsonl")
    data = DataFolder(tmp_path / "data").create()
    ingested = ingest_file(tmp_path / "host.jsonl", data)
    with duckdb.connect(str(data.recording_file(ingested.id)), read_only=True) as recording:
        count, cores, gpu_samples = recording.execute(
            "SELECT count(*), max(cores), (SELECT count(*) FROM samples) FROM host_samples"
        ).fetchall()[0]
    assert (count, gpu_samples) == (8, 0)
    assert cores >= 1


@pytest.mark.parametrize("code", [9, 12, 18, 4, 999])
def test_a_missing_driver_is_reported_with_a_sentence(code: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    time = FakeClock()
    nvml = FakeNvml(time)
    nvml.fail[("nvmlInit", None)] = code
    assert command.main(["--out", str(tmp_path), "--no-host"], nvml=nvml, clock=time.clock()) == 2
    message = capsys.readouterr().err
    assert message.startswith("sawtooth sample: ") and message.count("\n") == 1
    assert ("NVML refuses access to the GPUs" in message, "no working NVIDIA driver" in message) == (code == 4, code in (9, 12))
    assert list(tmp_path.iterdir()) == []


def test_plain_lines_match_the_recordings(tmp_path: Path) -> None:
    time = FakeClock()
    out = tmp_path / "nvml.jsonl"
    arguments = ["--format", "jsonl", "--out", str(out), "--seconds", "1", "--gpus", "0"]
    assert command.main(arguments, nvml=FakeNvml(time), clock=time.clock(), caller=Direct()) == 0
    meta, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert meta["meta"] is True and meta["name"] == "NVIDIA H200" and meta["gpm"] is True and meta["hz"] == 10
    assert rows[5]["gpu_util"] == 71 and rows[5]["throttle"] == 4 and rows[5]["mem_total"] == 150_754_820_096
    assert rows[5]["gpm_tensor_any"] == 5.0 and rows[5]["gpm_pcie_rx"] == 21.0
    assert "gpm_tensor_any" not in rows[0]
    assert abs(rows[3]["t_ns"] - rows[2]["t_ns"] - 100_000_000) < 1_000_000


def test_a_wrapped_command_gives_its_exit_code(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--interval", "0.02", "--", "sh", "-c", "exit 7"]
    assert command.main(arguments, nvml=FakeNvml(FakeClock())) == 7
    (session,) = tmp_path.iterdir()
    assert (session / "meta.json").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("odd")])
def test_the_sampler_waits_for_its_command_when_sampling_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(SessionSink, "devices", fails)
    done = tmp_path / "done"
    arguments = ["--out", str(tmp_path / "out"), "--", "sh", "-c", f"sleep 0.5; touch {done}; exit 7"]
    assert command.main(arguments, nvml=FakeNvml(FakeClock())) == 7
    assert done.exists()
    assert "The command continues without sampling." in capsys.readouterr().err


def test_a_failed_command_and_a_missing_folder_are_distinguished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, marker = tmp_path / "train.sh", tmp_path / "marker"
    script.write_text("#!/bin/sh")
    for out, words, sentence in (
        (tmp_path, ["no-such-command"], "There is no command 'no-such-command'."),
        (tmp_path, [str(script)], f"{str(script)!r} cannot be run (Permission denied)."),
        (
            tmp_path / "none" / "nvml.jsonl",
            ["touch", str(marker)],
            f"The folder {str(tmp_path / 'none')!r} for the samples does not exist",
        ),
    ):
        assert command.main(["--out", str(out), "--", *words], nvml=FakeNvml(FakeClock())) == 2
        assert sentence in capsys.readouterr().err
    assert not marker.exists()
