"""Tests of the bundled example recordings: they are ingested once."""

import gzip
import json
from pathlib import Path

import pytest

from sawtooth.app.jobs import child
from sawtooth.app.jobs.bundled_examples import SAMPLES, bundled_recordings, first_pair, import_bundled
from sawtooth.app.jobs.first_answer import FILE, computed_first_answer, first_answer
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.jobs.job_files import JobFile, JobRequest
from sawtooth.app.jobs.queue import Jobs
from sawtooth.app.settings import Settings
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.servers import until


def _samples(folder: Path) -> Path:
    for name, truth in (("slow", {"fixed_by": [{"recording": "fixed"}]}), ("fixed", {"fixed_by": []}), ("empty", None)):
        (folder / name).mkdir(parents=True)
        if truth is not None:
            (folder / name / "trace.json.gz").write_bytes(gzip.compress(b"{}"))
            (folder / name / "nvml.jsonl").write_bytes(b"")
            (folder / name / "truth.json").write_text(json.dumps({"planted": "x", **truth}))
    return folder


def test_the_shipped_recordings_are_a_starved_run_its_fix_and_another() -> None:
    items = {item.name: item for item in bundled_recordings()}
    assert len(items) >= 3
    assert any(item.fixed_by in items for item in items.values())
    assert all(len(item.files) >= 2 for item in items.values())
    assert all(sum(path.stat().st_size for path in item.files) < 2_000_000 for item in items.values())
    assert (SAMPLES / "__init__.py").exists()


def test_each_example_is_ingested_once_and_stays_deleted(tmp_path: Path) -> None:
    samples = _samples(tmp_path / "samples")
    data = DataFolder(tmp_path / "data").create()
    jobs = Jobs(Settings(data), command=lambda folder: ["true"])
    assert import_bundled(jobs, data, samples) == ["slow", "fixed"]
    assert import_bundled(jobs, data, samples) == []
    assert import_bundled(jobs, data, samples, again=True) == ["slow", "fixed"]  # `sawtooth demo` restores them
    (data.root / "bundled.json").write_bytes(b'{"imported": ["\xcd')
    assert import_bundled(jobs, data, samples) == ["slow", "fixed"]
    jobs.close()


def test_the_first_example_is_read_alone(tmp_path: Path) -> None:
    jobs = Jobs(Settings(DataFolder(tmp_path / "data").create()), command=lambda folder: ["sleep", "30"])
    try:
        import_bundled(jobs, jobs.settings.data, _samples(tmp_path / "samples"))
        until(lambda: any(job.stage == "reading" for job in jobs.all()))
        fixed, slow = jobs.all()
        assert (slow.stage, fixed.stage) == ("reading", "waiting")
        assert (slow.name, fixed.name) == ("slow", "fixed")  # Both would otherwise be "trace.json.gz and 1 more".
    finally:
        jobs.close()


def test_the_shipped_answer_equals_this_analysis() -> None:
    assert first_answer() == computed_first_answer(), "python -m sawtooth.app.jobs.first_answer writes it anew"


def test_a_folder_without_an_answer_or_with_a_damaged_one_has_none(tmp_path: Path) -> None:
    samples = _samples(tmp_path / "samples")
    assert first_answer(samples) is None
    (samples / "slow" / FILE).write_text('{"name": "slow", "headl')
    first_answer.cache_clear()
    assert first_answer(samples) is None


def test_the_first_pair_is_the_slow_run_and_its_fix(tmp_path: Path) -> None:
    samples = _samples(tmp_path / "samples")
    slow = Manifest(id="a" * 16, name="slow", recordings=[], bundled=True)
    fixed = Manifest(id="b" * 16, name="fixed", recordings=[], bundled=True)
    assert first_pair([fixed, slow], samples) == (slow, fixed)
    assert first_pair([slow], samples) is None
    assert first_pair([slow, Manifest(id="c" * 16, name="fixed", recordings=[])], samples) is None


@pytest.mark.parametrize("own_first", [True, False])
def test_ingesting_an_example_makes_an_own_run(tmp_path: Path, own_first: bool) -> None:
    # The same trace is one run. Own runs hide the examples, so the run would disappear if it still counted as an example.
    trace = matmul_loop().write(tmp_path / "trace.json")
    data = DataFolder(tmp_path / "data").create()
    files = [JobFile(str(trace), trace.name, trace.stat().st_size)]
    example = JobRequest(str(data.root), files, name="gpt", bundled=True, created_ns=5)
    if own_first:
        mine = ingest_into_runs(data, [(trace, trace.name)], name="mine").runs[0]
        child.run(example, lambda _: None)
        assert data.manifests() == [mine]
    else:
        child.run(example, lambda _: None)
        assert [(run.name, run.bundled, run.created_ns) for run in data.manifests()] == [("gpt", True, 5)]
        ingest_into_runs(data, [(trace, trace.name)], name="mine")
        assert [(run.name, run.bundled) for run in data.manifests()] == [("mine", False)]
