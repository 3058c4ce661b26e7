"""Tests of buckets as storage: the same sources and summaries as in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sawtooth.analysis.cluster.mapping import map_sources
from sawtooth.analysis.cluster.storage import Folder, list_sources, parent_of, storage_at
from sawtooth.analysis.cluster.summary import unpack
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from tests.support.chrome_trace import matmul_loop

BUCKET = "s3://traces/job"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return an empty bucket of a server with S3's interface, configured by the environment alone."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'sawtooth[cluster]'")
    boto3 = pytest.importorskip("boto3", reason="moto is not installed: pip install 'moto[s3,server]'")
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3,server]'")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url, "AWS_ENDPOINT": url, "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="traces")
    yield BUCKET
    running.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # moto's own
def test_a_bucket_and_a_folder_give_the_same_map(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    place = storage_at(f"{bucket}/traces")
    for i in range(2):
        path = matmul_loop(steps=3, step_us=800 + i).write(tmp_path / "traces" / f"{i}.json")
        place.write(path.name, path.read_bytes())
    place.write("notes.md", b"not a trace")

    def mapped(urls: str, to: str) -> list[dict]:
        done = map_sources([urls], to, summarise, lambda task, sources, place: (task(s, place) for s in sources))
        assert (done.sources, done.before, done.done, done.failed) == (2, 0, 2, [])
        again = map_sources([urls], to, summarise, lambda task, sources, place: iter(()))
        assert (again.sources, again.before) == (2, 2), "nothing is left to read"
        rows = [unpack(storage_at(to).read(name)).to_pylist()[0] for name in storage_at(to).names()]
        return sorted(({**row, "source": None, "state": None} for row in rows), key=lambda row: row["id"])

    in_bucket = mapped(f"{bucket}/traces", f"{bucket}/summaries")
    assert in_bucket == mapped(str(tmp_path / "traces"), str(tmp_path / "summaries"))
    (first, _) = list_sources([f"{bucket}/traces"])
    assert list_sources([first.url]) == [first], "one object by its address"
    storage_at(f"{bucket}/traces/below").write("c.json", b"{}")
    assert place.names() == {"0.json", "1.json", "notes.md"} and len(list(place.sources())) == 4


@pytest.mark.filterwarnings("ignore")
def test_an_object_missing_in_a_bucket_is_named_without_a_secret(bucket: str, tmp_path: Path) -> None:
    place = storage_at(bucket)
    for action in (lambda: place.read("gone"), lambda: place.fetch("gone", tmp_path / "gone")):
        with pytest.raises(NotFoundError, match="s3://traces/job/gone does not exist"):
            action()
    place.remove("gone")
    with pytest.raises(SawtoothError) as refused:
        storage_at("s3://no-such-bucket/a").names()
    assert "testing" not in str(refused.value)


def test_a_folder_writes_complete_files_and_forgets_deleted_ones(tmp_path: Path) -> None:
    place = Folder(tmp_path / "new")
    assert place.names() == set()
    place.write("a", b"1")
    place.write("a", b"2")
    assert (place.names(), place.read("a")) == ({"a"}, b"2")
    assert parent_of(next(place.sources()))[1] == "a"
    place.remove("a")
    place.remove("a")
    with pytest.raises(NotFoundError, match="does not exist"):
        place.read("a")
