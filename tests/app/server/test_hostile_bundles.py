"""Tests of hostile bundles, which must not read or write outside of their import."""

from __future__ import annotations

import gzip
import io
import json
import struct
import time
import zipfile

import msgspec
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.runs.bundle import import_bundle
from sawtooth.ingest.runs.bundle_file import open_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.bundles import manifest_bytes, packed
from tests.support.paths import SAMPLES


def zip_with(name: str, content: bytes, *, mode: int = 0, **change) -> bytes:
    """Return a bundle whose second member has another name or Unix mode."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("manifest.json"), manifest_bytes(**change))
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../sources/0001.gz", "sources/../../x.gz", "sources\\0001.gz", "C:/x", "sources/", "sources/00001.gz", "SOURCES/0001.gz"],
)  # fmt: skip
def test_only_expected_members_of_a_bundle_are_read(tmp_path, name):
    path = tmp_path / "x.sawtooth"
    path.write_bytes(zip_with(name, b"x"))
    with pytest.raises(SourceError), open_bundle(path):
        pass
    assert not (tmp_path.parent / "x.gz").exists()


def test_a_symbolic_link_in_a_bundle_is_not_followed(tmp_path):
    path = tmp_path / "x.sawtooth"
    path.write_bytes(zip_with("sources/0001.gz", b"/etc/passwd", mode=0o120777))
    with pytest.raises(SourceError) as refusal:
        import_bundle(path, DataFolder(tmp_path / "d"))
    assert "root:" not in str(refusal.value)
    assert list((tmp_path / "d" / "recordings").iterdir()) == [] and list((tmp_path / "d" / "uploads").iterdir()) == []


def test_a_source_compressed_a_thousandfold_is_refused_before_unpacking(tmp_path):
    path = packed(
        tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": bytes(64 << 20)}, zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 1 << 20
    with pytest.raises(SourceError) as refusal, open_bundle(path):
        pass
    assert refusal.value.code == "E-BOMB"


def test_a_false_size_is_not_trusted(tmp_path):
    # The header gives 10 bytes, and the stream has 64 MB. Reading stops at the given size, and the checksum does not
    # match.
    path = packed(
        tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": bytes(64 << 20)}, zipfile.ZIP_DEFLATED
    )
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<L", 64 << 20), struct.pack("<L", 10)))
    started = time.monotonic()
    with pytest.raises(SourceError):
        import_bundle(path, DataFolder(tmp_path / "d"))
    assert time.monotonic() - started < 20 and list((tmp_path / "d" / "uploads").iterdir()) == []


MANIFESTS = {
    "a hundred thousand runs": manifest_bytes(runs=[{"name": "r", "recordings": []}] * 1001),
    "deep": b'{"runs": [], "x": ' + b"[" * 100_000,
    "a member that is a path": manifest_bytes(runs=[{"name": "r", "recordings": [{"member": "../../etc/passwd", "source_name": "x", "kind": "trace"}]}]),
    "a number of many digits": b'{"format": ' + b"9" * 100_000 + b"}",
    "infinite facts": manifest_bytes().replace(b'"r"', b'"r", "facts": {"step_time_ms": 1e999}'),
}  # fmt: skip


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_hostile_manifest_is_refused_with_a_sentence(tmp_path, manifest):
    path = packed(tmp_path / "x.sawtooth", {"manifest.json": manifest, "sources/0001.gz": b"x"})
    with pytest.raises(SourceError) as refusal, open_bundle(path):
        pass
    assert len(str(refusal.value)) < 400 and str(tmp_path) not in str(refusal.value)


def test_labels_of_a_bundle_are_bounded(tmp_path):
    run = {
        "name": "n" * 10_000,
        "recordings": [{"member": "sources/0001.gz", "source_name": "x/" * 3000 + "a", "kind": "telemetry"}],
    }
    run |= {
        "tags": ["t" * 1000 + str(i) for i in range(1000)],
        "settings": {"k" * 1000 + str(i): "v" * 1000 for i in range(1000)},
        "notes": "n" * 200_000,
    }
    source = (SAMPLES / "gpt" / "nvml.jsonl").read_bytes()
    path = packed(
        tmp_path / "x.sawtooth",
        {"manifest.json": json.dumps({"runs": [run]}).encode(), "sources/0001.gz": gzip.compress(source)},
    )
    (made,) = import_bundle(path, DataFolder(tmp_path / "d"))
    assert (
        len(made.name) <= 200
        and len(made.tags) <= 100
        and len(made.settings) <= 100
        and len(msgspec.json.encode(made)) < 300_000
    )
