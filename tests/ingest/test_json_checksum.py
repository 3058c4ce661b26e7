"""Tests of the checksum of a manifest, which reveals flipped bits. Older manifests have no checksum."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.manifest import Manifest, RecordingRef, UserFacts, new_manifest
from sawtooth.ingest.runs.proposals import Proposal, proposal_for, propose
from sawtooth.ingest.schema import DataFolder


@pytest.fixture
def stored_run(tmp_path: Path) -> tuple[DataFolder, Manifest]:
    folder = DataFolder(tmp_path).create()
    refs = [RecordingRef("0" * 16, "trace", "t.json", 0), RecordingRef("1" * 16, "telemetry", "n", offset_ns=5)]
    for ref in refs:  # propose() refuses runs whose recordings are missing.
        folder.recording_file(ref.id).touch()
    facts = UserFacts(step_time_ms=46.8, samples_per_step=16)
    run = msgspec.structs.replace(new_manifest(refs, "run é"), facts=facts, settings={"lr": "1"}, tags=["a"], notes="n")
    folder.write_manifest(run)
    return folder, run


def test_a_bit_flip_in_any_byte_of_a_manifest_is_reported(stored_run: tuple[DataFolder, Manifest]) -> None:
    folder, run = stored_run
    path = folder.manifest_file(run.id)
    content = path.read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        with pytest.raises(NotFoundError, match="damaged"):
            folder.read_manifest(run.id)
    path.write_bytes(content)
    assert folder.read_manifest(run.id) == run


def test_a_bit_flip_in_any_byte_of_a_proposal_removes_it(stored_run: tuple[DataFolder, Manifest]) -> None:
    folder, run = stored_run
    propose(folder, Proposal(run.id, "x.sawtooth", run.recordings, facts=UserFacts(step_time_ms=1.0)))
    path = folder.proposal_file(run.id)
    content = path.read_bytes()
    assert proposal_for(folder, run.id) is not None
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        assert proposal_for(folder, run.id) is None


def test_a_manifest_without_a_checksum_opens(stored_run: tuple[DataFolder, Manifest]) -> None:
    folder, run = stored_run
    path = folder.manifest_file(run.id)
    for old in (without_checksum(path.read_bytes()), msgspec.json.encode(run)):
        path.write_bytes(old)
        assert folder.read_manifest(run.id) == run


@pytest.mark.parametrize("key", ["fact", "Name", "sael"])
def test_an_unknown_key_is_refused_and_named(stored_run: tuple[DataFolder, Manifest], key: str) -> None:
    folder, run = stored_run
    content = msgspec.json.decode(msgspec.json.encode(run)) | {key: "x"}
    folder.manifest_file(run.id).write_bytes(msgspec.json.encode(content))
    with pytest.raises(NotFoundError, match=f"`{key}`"):
        folder.read_manifest(run.id)


def test_only_an_indented_object_gets_a_checksum() -> None:
    for content in (b"{}", b"[]", b'{"a":1}', b"{\n}"):
        with pytest.raises(ValueError, match="only an indented JSON object"):
            with_checksum(content)


def test_a_flipped_bit_of_the_checksum_is_reported() -> None:
    """A file with a damaged key ``seal`` is reported. It is not read as a file without a checksum."""
    content = with_checksum(b'{\n "a": 1\n}') + b"\n"
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert msgspec.json.decode(without_checksum(bytes(flipped))) == {"a": 1}, bit
        except ValueError:
            continue
    assert without_checksum(b'{"a": 1}') == b'{"a": 1}'


@pytest.mark.parametrize("more", [b" ", b"}", b'{\n  "notes": "more"\n}'])
def test_data_after_a_checksum_is_refused(more: bytes) -> None:
    content = with_checksum(b'{\n  "a": 1\n}')
    assert without_checksum(content + b"\n") == b'{\n  "a": 1\n}'
    with pytest.raises(ValueError, match="does not match the content"):
        without_checksum(content + more)
