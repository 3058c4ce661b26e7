"""Tests of --redact, which removes names of hosts, users and folders, and secrets, from exported data."""

from __future__ import annotations

import gzip
import json
import random
import zipfile
from pathlib import Path

import msgspec
import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.runs.bundle import export_runs, import_bundle
from sawtooth.ingest.runs.bundle_file import is_bundle
from sawtooth.ingest.runs.redact import CHUNK_BYTES, Redactor
from sawtooth.ingest.sampler.segments import decode_line, encode_line
from sawtooth.ingest.schema import DataFolder
from tests.support import nsight_export
from tests.support.chrome_trace import matmul_loop
from tests.support.command_line import run as command
from tests.support.paths import SAMPLES, TELEMETRY
from tests.support.redaction import redacted


@pytest.mark.parametrize(
    ("original", "kept_text", "removed_words"),
    [
        ('"/home/alice/secret/train.py(42): step"', 'train.py(42): step"', ("alice", "secret", "home")),
        ('"/usr/lib/python3.11/site-packages/torch/nn/modules/module.py(9): f"', "site-packages/torch/nn/modules/module.py(9): f", ("/usr",)),
        ('"/opt/conda/lib/python3.11/threading.py(1)"', "lib/python3.11/threading.py(1)", ("conda",)),
        (r'"C:\\Users\\bob\\proj\\train.py"', 'train.py"', ("bob", "Users", "proj")),
        ('"host_name": "gpu-17.lab.example"', '"host_name": "host-1"', ("lab", "gpu-17")),
        ('"cwd": "/home/alice"', '"cwd": "/redacted"', ("alice",)),
        ('"/Users/Bob Smith/a/train.py(1)"', "train.py(1)", ("Bob", "Smith")),
        ('run --data=/mnt/big/imagenet/train', "train", ("mnt", "imagenet")),
        ('"cmdline": "python t.py --api-key abc-17 --lr 0.1 --user carol"', "--lr 0.1", ("abc-17", "carol")),
        ('"env": {"HOME": "/root", "ANY": "value-9"}, "next": 1', '"next": 1', ("value-9", "ANY")),
        ('"HF_TOKEN": "hfvalue", "n": 2', '"n": 2', ("hfvalue",)),
        ('load WANDB_API_KEY=0a1b2c step', "step", ("0a1b2c",)),
        ('"load sk-PLANT42424242 and hf_PLANT123456"', "load redacted and redacted", ("PLANT",)),
        (r'"metadata": "{\"password\": \"hunter22\"}"', "metadata", ("hunter22",)),
        (r'{"env": {"BASH_FUNC_module%%": "() {  eval \"x\" }", "A": "value-9"}, "next": 1}', '"env": {}, "next": 1', ("value-9", "BASH")),
        ('{"env": {"all": {"A": "value-9"}, "B": ["value-8]"]}, "next": 1}', '"env": {}, "next": 1', ("value-9", "value-8")),
        ('{"environ": ["A=value-9", "B=]value-8"], "next": 1}', '"environ": [], "next": 1', ("value-9", "value-8")),
        ('["python", "t.py", "--api-key", "abc def, ghi", "--lr", "0.1"]', '"--lr", "0.1"]', ("abc", "def", "ghi")),
        ('["t.py",\n "--password",\n "hunter22",\n "--lr"]', '"--lr"]', ("hunter22",)),
        ('["--password=my horse, \\"battery\\"", "--lr"]', '"--lr"]', ("my", "horse", "battery")),
        ("t.py --password 'my horse' --token a,b,c --lr 0.1", "--lr 0.1", ("my", "horse", "a,", ",b", ",c")),
        (r'"cmdline": "t.py --password \"my horse\" --lr 0.1"', '--lr 0.1"', ("my", "horse")),
        (r'"password": "two words, a \" and more", "n": 2', '"n": 2', ("two", "words", "and", "more")),
        (r'"m": "{\"password\": \"two words \\\" more\", \"n\": 2}"', r'\"n\": 2}"', ("two", "words", "more")),
    ],
)  # fmt: skip
def test_names_are_removed_and_files_stay(original: str, kept_text: str, removed_words: tuple[str, ...]) -> None:
    text = Redactor().text(original)
    assert kept_text in text
    assert not [word for word in removed_words if word in text]


@pytest.mark.parametrize(
    "text",
    [
        '"torch/nn/modules/module.py(1955): __getattr__"',
        '"aten::add_"',
        '"void at::native::(anonymous namespace)::f<float, 4/2>(int, a / b)"',
        '"https://example.org/a/b"',
        '{"ts": 1/2, "name": "x//y"}',
        '"tokens": 4096, "token": 128, "max_token=512"',
        '"token": null, "user": [12345], "secret": {"a": true}, "max_token": "512", "n": ["--token", "--lr"]',
        '"env": 4, "envs": {"a": 1}, "name": "env: {x}"',
        '"name": "user_annotation", "cat": "user_annotation", "name": "embed_tokens"',
        '"aten::_scaled_dot_product_flash_attention(query, key, value)"',
        '"Memcpy HtoD (Pinned -> Device)"',
    ],
)
def test_text_that_is_not_a_path_does_not_change(text: str) -> None:
    assert Redactor().text(text) == text


def test_replaced_names_are_consistent_within_one_export() -> None:
    redactor = Redactor(["node7"])
    a, b, again = (redactor.text(f'"/x/{folder}/train.py"') for folder in ("a", "b", "a"))
    assert a == again
    assert a != b
    assert redactor.host("node7") == "host-1"
    assert redactor.host("node8") == "host-2"
    assert redactor.text("on node7, not node70") == "on host-1, not node70"
    assert Redactor().text('"/x/a/train.py"') != a
    assert redactor.text(redactor.text('"/x/a/train.py"')).endswith('train.py"')


def test_checksums_of_a_redacted_session_are_valid(tmp_path: Path) -> None:
    head = encode_line({"k": "head", "m": 0, "w": 0, "host": "gpu-17", "boot": "abc-def", "columns": []})
    tick = encode_line({"k": "tick", "m": 1, "w": 1, "p": [[0, 7, 1, "/home/alice/venv/bin/python"]]})
    source, target = tmp_path / "s.jsonl", tmp_path / "t.gz"
    source.write_bytes(head + tick + tick[:-9] + b'0000000"}\n')
    Redactor().source(source, target)
    lines = gzip.decompress(target.read_bytes()).splitlines()
    first, second, damaged = (decode_line(line) for line in lines)
    assert first is not None
    assert second is not None
    assert first["host"] == "host-1"
    assert second["p"][0][3].endswith("/python")
    assert damaged is None
    assert b"alice" not in b"".join(lines)


@pytest.mark.parametrize("lines", [True, False])
def test_names_across_two_chunks_are_removed(tmp_path: Path, lines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHUNK_BYTES > 1000
    monkeypatch.setattr("sawtooth.ingest.runs.redact.CHUNK_BYTES", 1000)
    dice = random.Random(2)
    events = [{"name": f"/home/alice/secret{i}/train.py({i}): f{'x' * dice.randrange(40)}", "ph": "X"} for i in range(500)]
    source, target = tmp_path / "s.json", tmp_path / "t.gz"
    source.write_text(json.dumps({"traceEvents": events}, indent=1 if lines else None))
    Redactor().source(source, target)
    text = gzip.decompress(target.read_bytes()).decode()
    assert "alice" not in text
    assert "secret" not in text
    assert [e["name"].rsplit("/", 1)[1] for e in json.loads(text)["traceEvents"]] == [
        e["name"].rsplit("/", 1)[1] for e in events
    ]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("shift", range(40))
def test_a_flag_keeps_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int, indent: int | None) -> None:
    monkeypatch.setattr("sawtooth.ingest.runs.redact.CHUNK_BYTES", 100)
    text = redacted(tmp_path, json.dumps(["x" * (shift + 20), *["--api-key", "abc def"] * 20], indent=indent))
    assert json.loads(text)[1:] == ["--api-key", "redacted"] * 20


def test_a_command_keeps_its_words_without_paths_and_secrets() -> None:
    command = [
        "/home/alice/env/bin/python",
        "train.py",
        "--api-key",
        "abc123xyz",
        "--data=/scratch/alice/set.bin",
        "--workers",
        "8",
        'say "hi"',
    ]
    cleaned = Redactor().words(command)
    assert len(cleaned) == len(command)
    assert cleaned[1:3] + cleaned[5:] == ["train.py", "--api-key", "--workers", "8", 'say "hi"']
    assert "alice" not in " ".join(cleaned) and "abc123xyz" not in " ".join(cleaned)
    assert Redactor().words([]) == []


@pytest.mark.parametrize(
    ("note", "expected_end"),
    [
        ("env was environ({'MOTD': \"it's\", 'PGPASS': 'hunter3x'}), lr 0.1", "env was environ({}), lr 0.1"),
        (r"data in C:\Users\alice\set.bin", "set.bin"),
        ("first\n/home/alice/a/x.py\nsk-PLANT42424242", "x.py\nredacted"),
        ('{"env": {"A": "hunter3x', '{"env": {'),
        ('"password": "hunter3x" \\', '"password": "redacted" \\'),
    ],
)
def test_notes_are_redacted(note: str, expected_end: str) -> None:
    cleaned = Redactor().text(note)
    assert cleaned.endswith(expected_end)
    assert not [word for word in ("alice", "hunter3x", "PLANT") if word in cleaned]


def test_any_text_can_be_redacted() -> None:
    """Random texts of special characters and words cause no error."""
    dice = random.Random(7)
    parts = [
        "\\",
        '"',
        "'",
        "\n",
        "password",
        "--token ",
        "=",
        ": ",
        "env",
        "{",
        "}",
        "C:",
        "/home/al/",
        "sk-12345678",
        "ab",
        ",",
        " ",
        "\x1b",
        "é",
    ]
    for _ in range(3000):
        text = "".join(dice.choices(parts, k=dice.randrange(30)))
        assert isinstance(Redactor().text(text), str)
        Redactor().words([text, "x"])
        Redactor().settings({text: text, "token": text})


def test_values_of_settings_with_secret_names_are_removed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(folder, [(SAMPLES / "gpt" / "nvml.jsonl", "nvml.jsonl")]).runs
    settings = {"wandb_api_key": "abc123", "db_password": "hunter2x", "/home/alice/data": "4", "lr": "0.1", "token": "512"}
    folder.write_manifest(msgspec.structs.replace(run, settings=settings))
    target = tmp_path / "x.sawtooth"
    exported = export_runs(folder, [run.id], target, redact=True).runs[0].settings
    assert exported == {
        "wandb_api_key": "redacted",
        "db_password": "redacted",
        "/redacted": "4",
        "lr": "0.1",
        "token": "512",
    }
    with zipfile.ZipFile(target) as archive:
        manifest = archive.read("manifest.json").decode()
    assert not [word for word in ("abc123", "hunter2x", "alice") if word in manifest]


def test_runs_are_exported_and_imported_on_the_command_line(tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    files = [str(matmul_loop().write(tmp_path / "trace.json")), str(TELEMETRY / "query.csv")]
    run = command("ingest", *files, "--data", a, "--name", "GPT at /home/alice/x/y").output.split()[-1]
    complete, cleaned = tmp_path / "w.sawtooth", tmp_path / "c.sawtooth"
    assert "1 run," in command("export", run, "-o", str(complete), "--data", a).output
    assert is_bundle(complete)
    assert command("import", str(complete), "--data", b).output.split()[-1] == run
    assert command("export", run, "-o", str(cleaned), "--redact", "--data", a).exit_code == 0
    imported = command("import", str(cleaned), "--data", c)
    assert imported.exit_code == 0
    (manifest,) = DataFolder(Path(c)).manifests()
    assert "alice" not in manifest.name
    assert len(manifest.recordings) == 2
    with zipfile.ZipFile(cleaned) as archive:
        manifest_text = archive.read("manifest.json").decode()
    assert "alice" not in manifest_text
    assert list((Path(a) / "uploads").iterdir()) == []


def test_a_run_without_anything_to_redact_also_gets_a_new_id(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    traces = [matmul_loop().write(tmp_path / "trace.json"), TELEMETRY / "query.csv"]
    (run,) = ingest_into_runs(folder, [(path, path.name) for path in traces]).runs
    export_runs(folder, [run.id], tmp_path / "run.sawtooth", redact=True)
    (other,) = import_bundle(tmp_path / "run.sawtooth", folder)
    assert other.id != run.id and len(folder.manifests()) == 2
    assert not {ref.id for ref in other.recordings} & {ref.id for ref in run.recordings}
    assert [(ref.kind, ref.source_name) for ref in other.recordings] == [(ref.kind, ref.source_name) for ref in run.recordings]


def test_failed_exports_and_imports_are_reported(tmp_path: Path) -> None:
    data = str(tmp_path / "a")
    assert command("export", "0123456789abcdef", "--data", data).exit_code != 0
    path = tmp_path / "x.sawtooth"
    path.write_bytes(b"no zip")
    failed = command("import", str(path), "--data", data)
    assert isinstance(failed.exception, UsageError)
    assert "sawtooth ingest" in str(failed.exception)


def test_a_database_is_redacted_completely_or_not_at_all(tmp_path: Path) -> None:
    data, out = str(tmp_path / "a"), tmp_path / "x.sawtooth"
    path = nsight_export.write(tmp_path / "run.sqlite", nsight_export.tables())
    run = command("ingest", str(path), "--data", data).output.split()[-1]
    failed = command("export", run, "-o", str(out), "--redact", "--data", data)
    assert isinstance(failed.exception, UsageError) and "environment" in str(failed.exception)
    assert not out.exists()
    assert command("export", run, "-o", str(out), "--data", data).exit_code == 0
