"""Tests of damaged and foreign ``.sawtooth`` files, each of which is refused in one sentence."""

from __future__ import annotations

import gzip
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.runs.bundle import import_bundle, write_bundle
from sawtooth.ingest.runs.bundle_file import BROKEN, BundleManifest, BundleRecording, BundleRun, open_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.bundles import manifest_bytes, packed
from tests.support.paths import SAMPLES

FACTS_THAT_MAY_BE_0 = [
    fact for fact, kind in UserFacts.__annotations__.items() if fact.startswith("loader_") and "Measure" in kind
]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"manifest.json": manifest_bytes(), "../../evil": b"x"}, "has a manifest and sources, and nothing else"),
        ({"manifest.json": manifest_bytes(), "sources/0001.gz/../x": b"x"}, "has a manifest and sources, and nothing else"),
        ({"a.txt": b"x"}, "has a manifest and sources, and nothing else"),
        ({"manifest.json": manifest_bytes()}, "does not contain"),
        ({"manifest.json": manifest_bytes(format=99), "sources/0001.gz": b""}, "newer Sawtooth"),
        ({"manifest.json": b"{", "sources/0001.gz": b""}, "is damaged"),
        ({"manifest.json": b'{"runs": []}', "sources/0001.gz": b""}, "does not contain"),
        ({"manifest.json": b" " * (5 << 20), "sources/0001.gz": b""}, "larger than 4 MB"),
        ({"manifest.json": manifest_bytes(runs=[{"name": "r", "recordings": "x"}]), "sources/0001.gz": b""}, "is damaged"),
    ],
)
def test_a_file_that_is_not_a_bundle_is_refused_with_a_sentence(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    path = packed(tmp_path / "x.sawtooth", members)
    with pytest.raises(SourceError, match=message) as error, open_bundle(path):
        pass
    assert str(error.value).count("\n") == 0 and str(tmp_path) not in str(error.value)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        (fact, value)
        for fact in UserFacts.__struct_fields__
        for value in (-1, 1e308, *(() if fact in FACTS_THAT_MAY_BE_0 else (0, 5e-324)))
    ],
)
def test_impossible_facts_are_refused_before_anything_is_stored(tmp_path: Path, fact: str, value: float) -> None:
    recordings = [{"member": "sources/0001.gz", "source_name": "t", "kind": "trace"}]
    check_refused(tmp_path, {"name": "r", "recordings": recordings, "facts": {fact: value}}, fact)


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset_ns", 10**30), ("offset_ns", -(2**63)), ("interval_ns", 0), ("interval_ns", -5), ("interval_ns", 2**63)],
)
def test_impossible_clocks_are_refused_before_anything_is_stored(tmp_path: Path, key: str, value: int) -> None:
    recordings = [{"member": "sources/0001.gz", "source_name": "t", "kind": "telemetry", key: value}]
    check_refused(tmp_path, {"name": "r", "recordings": recordings}, key)


def check_refused(tmp_path: Path, run: dict[str, Any], words: str) -> None:
    source = gzip.compress((SAMPLES / "gpt" / "nvml.jsonl").read_bytes())
    path = packed(tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(runs=[run]), "sources/0001.gz": source})
    folder = DataFolder(tmp_path / "b")
    with pytest.raises(SourceError, match=words):
        import_bundle(path, folder)
    assert folder.manifests() == [] and list(folder.recordings.iterdir()) == []


def test_members_named_twice_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.sawtooth", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("manifest.json", manifest_bytes())
        archive.writestr("sources/0001.gz", b"1")
        archive.writestr("sources/0001.gz", b"2")
    with pytest.raises(SourceError, match="has a manifest and sources, and nothing else"), open_bundle(tmp_path / "x.sawtooth"):
        pass


def test_a_bad_source_registers_no_run(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": gzip.compress(b"\x89PNG....")}
    )
    folder = DataFolder(tmp_path / "d")
    with pytest.raises(SourceError, match="PNG"):
        import_bundle(path, folder)
    assert folder.manifests() == [] and list(folder.recordings.iterdir()) == [] and list(folder.uploads.iterdir()) == []


def test_a_decompression_bomb_is_stopped(tmp_path: Path) -> None:
    inner = gzip.compress(b"\0" * (300 << 20), 9)
    path = packed(tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": inner}, zipfile.ZIP_DEFLATED)
    with pytest.raises(SourceError):
        import_bundle(path, DataFolder(tmp_path / "d"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_bundle_is_refused(tmp_path: Path, share: float) -> None:
    source = tmp_path / "s.jsonl"
    source.write_bytes((SAMPLES / "gpt" / "nvml.jsonl").read_bytes())
    run = BundleRun("r", [BundleRecording("sources/0001.gz", "nvml.jsonl", "telemetry")])
    write_bundle(tmp_path / "x.sawtooth", BundleManifest([run]), {"sources/0001.gz": source})
    content = (tmp_path / "x.sawtooth").read_bytes()
    (tmp_path / "cut.sawtooth").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SourceError) as error:
        import_bundle(tmp_path / "cut.sawtooth", DataFolder(tmp_path / "d"))
    assert str(error.value) == BROKEN


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_are_noticed_or_harmless(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "s.jsonl"
    source.write_bytes((SAMPLES / "gpt" / "nvml.jsonl").read_bytes())
    run = BundleRun("r", [BundleRecording("sources/0001.gz", "nvml.jsonl", "telemetry")])
    write_bundle(tmp_path / "x.sawtooth", BundleManifest([run]), {"sources/0001.gz": source})
    content = bytearray((tmp_path / "x.sawtooth").read_bytes())
    start = random.Random(seed).randrange(len(content) - 8)
    for i in range(start, start + 8):
        content[i] ^= 0x5A
    (tmp_path / "x.sawtooth").write_bytes(bytes(content))
    try:
        import_bundle(tmp_path / "x.sawtooth", DataFolder(tmp_path / "d"))
    except SourceError as error:
        assert str(error).endswith(".")


def test_a_false_list_of_members_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "lies.sawtooth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", b"{}")
    content = bytearray(path.read_bytes())
    content[30:34] = b"othe"  # The header of the member has another name than the list of members.
    path.write_bytes(content)
    with pytest.raises(SourceError, match="does not match the content"), open_bundle(path):
        pass


@pytest.mark.parametrize("cut", [1, 20, 40, 80])
def test_a_bundle_without_its_beginning_is_refused_with_a_sentence(tmp_path: Path, cut: int) -> None:
    """The list of members then gives a member's start before the beginning of the file."""
    complete = packed(tmp_path / "whole.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": gzip.compress(b"{}")})
    path = tmp_path / "cut.sawtooth"
    path.write_bytes(complete.read_bytes()[cut:])
    with pytest.raises(SourceError, match=r"damaged|made to mislead"), open_bundle(path):
        pass
