"""Tests of mapping a job: every source is read once, and a killed map can be completed."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sawtooth.analysis.cluster.mapping import SourceOutcome, Task, map_sources, summary_name
from sawtooth.analysis.cluster.storage import SourceVersion, list_sources, part_of
from sawtooth.analysis.cluster.workers import DIED, MAX_TRIES, in_processes
from sawtooth.ingest.errors import UsageError
from tests.support import cluster_tasks
from tests.support.paths import ROOT

TWO = functools.partial(in_processes, workers=2)


def here(task: Task, sources: Sequence[SourceVersion], to: str) -> Iterator[SourceOutcome]:
    """Return an engine that runs its tasks without processes."""
    return (task(source, to) for source in sources)


def sources_in(folder: Path, *names: str) -> Path:
    (folder / "traces").mkdir(exist_ok=True)
    for name in names:
        (folder / "traces" / name).write_text(name)
    return folder / "traces"


def read_in(folder: Path) -> list[str]:
    return sorted(line.split()[0] for line in (folder / "read.log").read_text().splitlines())


def test_a_second_run_reads_only_what_is_new_or_has_changed(tmp_path: Path) -> None:
    traces, to = sources_in(tmp_path, "a.json", "b.json"), tmp_path / "summaries"
    first = map_sources([str(traces)], str(to), cluster_tasks.read, here)
    assert (first.sources, first.before, first.done) == (2, 0, 2)
    sources_in(tmp_path, "c.json")
    (traces / "a.json").write_text("written again")
    os.utime(traces / "a.json", ns=(1, 1))
    second = map_sources([str(traces)], str(to), cluster_tasks.read, here)
    assert (second.sources, second.before, second.done) == (3, 1, 3)
    assert read_in(tmp_path) == ["a.json", "a.json", "b.json", "c.json"]
    assert sorted(p.read_text() for p in to.iterdir()) == ["b.json", "c.json", "written again"], "the old summary of a is gone"


def test_a_failed_source_is_read_again_and_a_refused_one_is_not(tmp_path: Path) -> None:
    traces, to = sources_in(tmp_path, "a.json", "b.json"), tmp_path / "summaries"
    to.mkdir()
    seen: list[str] = []

    def task(source: SourceVersion, place: str) -> SourceOutcome:
        seen.append(Path(source.url).name)
        if "a" in Path(source.url).name:
            return SourceOutcome(source.url, failed="The store did not answer.")
        (Path(place) / summary_name(source)).touch()
        return SourceOutcome(source.url, refused="This is no trace.")

    done = [map_sources([str(traces)], str(to), task, here) for _ in range(2)]
    assert seen == ["a.json", "b.json", "a.json"]
    assert [(len(item.failed), len(item.refused), item.done) for item in done] == [(1, 1, 1), (1, 0, 1)]


@pytest.mark.slow
def test_only_the_source_of_a_killed_worker_is_tried_again(tmp_path: Path) -> None:
    names = ["a.json", "b.once.json", "c.json", "d.always.json", "e.json"]
    traces, to = sources_in(tmp_path, *names), tmp_path / "summaries"
    done = map_sources([str(traces)], str(to), cluster_tasks.die_at_first, TWO)
    assert {Path(outcome.url).name: outcome.failed for outcome in done.outcomes} == {
        **dict.fromkeys(names), "d.always.json": DIED.format(tries=MAX_TRIES)
    }  # fmt: skip
    assert {name: len((tmp_path / f"{name}.tries").read_text()) for name in names} == {
        "a.json": 1, "b.once.json": 2, "c.json": 1, "d.always.json": MAX_TRIES, "e.json": 1
    }  # fmt: skip
    assert read_in(tmp_path) == ["a.json", "b.once.json", "c.json", "e.json"]


@pytest.mark.slow
def test_a_process_reads_many_sources(tmp_path: Path) -> None:
    traces = sources_in(tmp_path, *(f"{i}.json" for i in range(12)))
    map_sources([str(traces)], str(tmp_path / "summaries"), cluster_tasks.read, TWO)
    assert len({line.split()[1] for line in (tmp_path / "read.log").read_text().splitlines()}) <= 2


def test_parts_cover_every_source_once_and_a_new_source_moves_no_other(tmp_path: Path) -> None:
    traces = sources_in(tmp_path, *(f"{i}.json" for i in range(20)))
    before = [part_of(list_sources([str(traces)]), i, 3) for i in (1, 2, 3)]
    assert sorted(s.url for part in before for s in part) == [s.url for s in list_sources([str(traces)])]
    assert all(before)
    sources_in(tmp_path, "10b.json")
    after = [part_of(list_sources([str(traces)]), i, 3) for i in (1, 2, 3)]
    assert all(set(old) <= set(new) for old, new in zip(before, after, strict=True))


def test_an_address_without_sources_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither a trace nor telemetry"):
        list_sources([str(tmp_path / "empty")])
    with pytest.raises(UsageError, match="not a supported address"):
        list_sources(["ftp://host/traces"])


def test_a_local_map_loads_neither_ray_nor_obstore() -> None:
    code = "import sys, sawtooth.app.commands.map, sawtooth.app.cli; print(sorted({'ray', 'obstore', 'streamlit'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
