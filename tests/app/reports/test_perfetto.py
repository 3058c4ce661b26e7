"""Tests of all ranks of a run as one trace: each event is there once.

Ranks are separate, on the common clock that the store gives.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from typer.testing import CliRunner

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.api import routes
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.reports.perfetto import merged_trace
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.manifests import delete_run
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.trace.torch_json import merging
from sawtooth.ingest.trace.torch_json.merging import RankSource, merge_traces
from tests.support import nsight_export
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import BASE_NS
from tests.support.pages import opened
from tests.support.prepared import prepared

CLOCK_US = 4_000.0  # Rank 1's clock is ahead by this time.
ARROW = {"cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 5.0}


def traces(folder: Path) -> list[Path]:
    """Return a job of two ranks whose clocks differ, with arrows of equal ids in both."""
    paths = []
    for rank, trace in enumerate(job(2, 1, Planted(clock_us={1: CLOCK_US}))):
        trace.events += [
            ARROW | {"ph": "s", "id": 7},
            ARROW | {"ph": "f", "bp": "e", "id": 7, "ts": 6.5},
            ARROW | {"ph": "s", "id": "x"},
        ]
        trace.events.append({"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}})
        trace.events.append({"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "args": {"sort_index": 2147483647}})
        paths.append(trace.write(folder / f"rank{rank}.json"))
    return paths


def run_of(folder: DataFolder, paths: list[Path]) -> Manifest:
    (run,) = ingest_into_runs(folder, [(path, path.name) for path in paths]).runs
    return run


def analysed(folder: DataFolder, run: Manifest) -> RunResult:
    with Library(folder) as library:
        return result_of(run, library)


def events_of(packed: bytes) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(packed))["traceEvents"]
    return events


def test_every_event_of_each_rank_is_exported_once(tmp_path: Path) -> None:
    folder, paths = DataFolder(tmp_path / "data").create(), traces(tmp_path)
    result = analysed(folder, run_of(folder, paths))
    events = events_of(b"".join(merged_trace(result, folder)))
    sources = [json.loads(path.read_text())["traceEvents"] for path in paths]
    bare = ("ph", "name", "cat", "dur", "args", "bp")

    def same(event: dict[str, Any]) -> str:
        return json.dumps([event.get(key) for key in bare], sort_keys=True)

    work = [event for event in events if event["ph"] != "M"]
    assert Counter(map(same, work)) == Counter(same(e) for source in sources for e in source if e["ph"] != "M")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {event["pid"] for event in events} == names.keys()
    assert Counter(name.split(" · ")[0] for name in names.values()) == {
        f"rank {rank}": len({e["pid"] for e in source}) for rank, source in enumerate(sources)
    }
    threads = {(e["pid"], e["tid"]) for e in work}
    assert len({tid for _, tid in threads}) == len(threads), "a thread's number is one process's alone"
    of_rank = {pid: name.split(" · ")[0] for pid, name in names.items()}
    arrows = {(e["id"], of_rank[e["pid"]]) for e in work if e["ph"] in "sf"}
    assert len(arrows) == len({number for number, _ in arrows}) == 4, "two arrows of each rank"
    assert all(type(number) is int and number < 2**53 for number, _ in arrows)
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert [of_rank[pid] for pid in sorted(order, key=lambda pid: order[pid])] == ["rank 0", "rank 1"]


def test_exported_times_are_on_the_clock_of_the_first_rank(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    run = run_of(folder, traces(tmp_path))
    result = analysed(folder, run)
    document = json.loads(gzip.decompress(b"".join(merged_trace(result, folder))))
    origin, events = document["baseTimeNanoseconds"], document["traceEvents"]
    of_rank = {e["pid"]: e["args"]["name"].split(" · ")[0] for e in events if e["name"] == "process_name"}
    assert result.communication is not None
    offsets = [0, result.communication.ranks[1].clock_offset_ns]
    assert offsets[1] == pytest.approx(CLOCK_US * 1000, abs=2_000)
    with Library(folder) as library:
        for ref, offset in zip(run.traces, offsets, strict=True):
            with library.open(ref.id) as recording:
                stored = recording.rows("SELECT start_ns, dur_ns FROM gpu_ops ORDER BY ALL")
            own = [e for e in events if e.get("cat") == "kernel" and of_rank[e["pid"]] == f"rank {ref.rank}"]
            assert [(s - (offset or 0), d) for s, d in stored] == sorted(
                (origin + round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in own
            )
    assert min(e["ts"] for e in events if "ts" in e and e["ph"] != "M") >= 0
    assert abs(origin - BASE_NS) < 2_000_000_000


def test_export_needs_memory_for_few_blocks(tmp_path: Path) -> None:
    (path, *_) = traces(tmp_path)
    source = json.loads(path.read_text())
    source["traceEvents"] *= 400
    path.write_text(json.dumps(source))
    complete, longest = 0, 0
    for piece in merge_traces([RankSource(path, "rank 0", 0)] * 3, 0):
        complete, longest = complete + len(piece), max(longest, len(piece))
    assert complete > 6_000_000 and longest < 4_000_000


def test_the_readable_part_of_a_damaged_source_is_exported(tmp_path: Path) -> None:
    (path, *_) = traces(tmp_path)
    text = path.read_text()
    cut = text[: text.index('"ac2g"')].rindex("{")
    (tmp_path / "cut.json").write_text(text[:cut] + '{"ph": "s", "id": 1, "name": "torn')
    events = json.loads(b"".join(merge_traces([RankSource(tmp_path / "cut.json", "rank 0", 0)], 0)))["traceEvents"]
    read = json.loads(text)["traceEvents"]
    before = [e for e in read if e["ph"] == "X"]
    assert [e["name"] for e in events if e["ph"] == "X"] == [e["name"] for e in before]


@pytest.mark.parametrize(("text", "number"), [(b"7", 7), (b'"0x7"', None), (b"-1", None), (b"9" * 30, None), (b"1.5", None)])
def test_ids_of_arrows_are_exact_in_browsers(text: bytes, number: int | None) -> None:
    made = merging._flow_number(text)
    assert 0 <= made < merging.MAX_ID and (number is None or made == number) and made == merging._flow_number(text)


def test_the_command_line_the_api_and_the_page_offer_it(tmp_path: Path, app_data: DataFolder) -> None:
    run = run_of(app_data, traces(tmp_path))
    out = tmp_path / "all.json.gz"
    done = CliRunner().invoke(cli, ["export", run.id, "--perfetto", "-o", str(out), "--data", str(app_data.root)])
    assert (done.exit_code, "2 traces" in done.output) == (0, True), done.output
    client = TestClient(Starlette(routes=routes()), base_url="http://localhost")
    answer = client.get(f"/api/v1/runs/{run.id}/trace?merged=1")
    assert answer.status_code == 200 and events_of(answer.content) == events_of(out.read_bytes())
    assert "Open all ranks in Perfetto" in str([e.proto for e in opened("timeline", run.id).main])
    delete_run(app_data, run.id)


def test_files_that_perfetto_cannot_read_are_not_offered(tmp_path: Path, app_data: DataFolder) -> None:
    nsight_export.write(tmp_path / "nsys.sqlite", nsight_export.tables())
    run = prepared(app_data, tmp_path / "nsys.sqlite")
    with pytest.raises(NotFoundError, match="not a trace of torch"):
        merged_trace(analysed(app_data, run), app_data)
    assert "Open in Perfetto" not in str([e.proto for e in opened("timeline", run.id).main])
    delete_run(app_data, run.id)
