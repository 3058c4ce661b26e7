"""Tests of encoded tiles: a reader decodes the same tile, and bad requests are refused."""

from __future__ import annotations

import json
import random
import struct

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sawtooth.analysis.tables import timeline, timeline_tiles
from sawtooth.app.api import routes
from sawtooth.app.api.timeline_details import LISTED_LENGTH, listed_names
from sawtooth.app.library import library
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDINGS, SAMPLES
from tests.support.prepared import prepared


@pytest.fixture
def run(app_data: DataFolder) -> Manifest:
    return prepared(app_data, SAMPLES / "gpt" / "trace.json.gz")


@pytest.fixture
def client(app_data: DataFolder) -> TestClient:
    return TestClient(Starlette(routes=routes()))


def decoded(data: bytes) -> list[tuple[dict, dict[str, np.ndarray]]]:
    """Decode tiles in the layout of ``sawtooth.app.api.timeline.encode_tile`` without using its code."""
    found, at = [], 0
    while at < len(data):
        length, padded = struct.unpack_from("<II", data, at)
        header = json.loads(data[at + 8 : at + 8 + length])
        at += 8 + padded
        columns = {}
        for name, kind, count in (
            *((n, k, header["slices"]) for n, k in (("start", "f8"), ("dur", "f8"), ("id", "u4"), ("name", "u4"), ("row", "u2"), ("kind", "u1"))),
            *((n, k, header["sums"]) for n, k in (("busy", "f8"), ("operations", "u4"), ("column", "u2"), ("sum_row", "u2"), ("sum_kind", "u1"))),
        ):  # fmt: skip
            columns[name] = np.frombuffer(data, f"<{kind}", count, at)
            at += -(-columns[name].nbytes // 8) * 8
        found.append((header, columns))
    return found


def test_a_tile_survives_encoding(client: TestClient, run: Manifest) -> None:
    recording = run.traces[0].id
    asked = f"/api/v1/runs/{run.id}/timeline/tiles?recording={recording}&device=0&level=18&index=0&sources=gpu,operators,gaps"
    answer = client.get(asked)
    assert answer.status_code == 200
    assert "private" in answer.headers["cache-control"]
    tiles = decoded(answer.content)
    assert [header["source"] for header, _ in tiles] == ["gpu", "operators", "gaps"]
    for header, columns in tiles:
        with library().open(recording) as opened:
            wanted = timeline_tiles.tile(opened, header["source"], 0, 18, 0)
        assert (header["level"], header["index"], header["complete"]) == (18, 0, wanted.complete)
        rows = np.array(header["rows"], int).reshape(-1, 2)
        for name, of in (("start", "start_ns"), ("dur", "dur_ns"), ("id", "id")):
            assert columns[name].tolist() == wanted.slices[of].tolist()
        assert rows[columns["row"]].tolist() == wanted.slices[["lane", "depth"]].to_numpy().tolist()
        assert [header["kinds"][k] for k in columns["sum_kind"]] == wanted.sums["kind"].tolist()
        for name, of in (("busy", "busy_ns"), ("operations", "operations"), ("column", "column")):
            assert columns[name].tolist() == wanted.sums[of].tolist()
        assert {int(i) for i in header["names"]} == set(wanted.slices["name_id"].dropna())


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("tiles?recording={recording}&device=0&level=18&index=0&sources=nothing", 400),
        ("tiles?recording={recording}&device=0&level=900&index=0&sources=gpu", 400),
        ("tiles?recording={recording}&device=0&level=18&index=x&sources=gpu", 400),
        ("tiles?recording={recording}&device=0&level=18&index=9999999999999999999&sources=gpu", 400),
        ("tiles?recording={recording}&device=0&level=18&index=0&sources=" + "gpu," * 50, 400),
        ("tiles?recording=0000000000000000&device=0&level=18&index=0&sources=gpu", 404),
        ("slice?recording={recording}&device=0&source=gpu&id=99999999", 404),
        ("slice?recording={recording}&device=0&source=names&id=1", 400),
        ("find?recording={recording}&device=0&q=&at=0", 400),
        ("occurrences?recording={recording}&device=0&rule=none", 400),
    ],
)
def test_an_impossible_request_is_refused_with_a_sentence(client: TestClient, run: Manifest, what: str, status: int) -> None:
    answer = client.get(f"/api/v1/runs/{run.id}/timeline/{what.format(recording=run.traces[0].id)}")
    assert answer.status_code == status
    assert answer.json()["error"]["sentence"].endswith(".")


def test_details_and_sums_belong_to_the_run(client: TestClient, run: Manifest) -> None:
    base = f"/api/v1/runs/{run.id}/timeline"
    of = f"recording={run.traces[0].id}&device=0"
    hit = client.get(f"{base}/find?{of}&q=elementwise&at=90000000").json()
    assert hit["position"] >= 1
    reported = client.get(f"{base}/slice?{of}&source={hit['hit']['source']}&id={hit['hit']['id']}").json()
    assert reported["slice"]["start"] == hit["hit"]["start"]
    assert ("launch" in [link["role"] for link in reported["links"]]) == (hit["hit"]["source"] == "gpu")
    stretch = client.get(f"{base}/stretch?{of}&start=0&end=100000000").json()
    parts = {part["label"]: part["ms"] for part in stretch["parts"]}
    assert list(parts.values()) == sorted(parts.values(), reverse=True)
    # The parts include lost time without a cause, and time outside the GPU's work.
    assert sum(parts.values()) == pytest.approx(100.0)
    assert parts["lost outside counted steps"] > 0  # The first step of the view does not count.
    works_ms = sum(ms for label, ms in parts.items() if label in ("tensor-core compute", "other compute", "memset"))
    assert 0 < stretch["works_share"] == pytest.approx(works_ms / 100, abs=0.005)  # Smaller parts are in one row.
    assert all(operation["ms"] > 0 for operation in stretch["operations"])


def test_a_finding_marks_its_events_and_owns_only_time_lost_there(client: TestClient, app_data: DataFolder) -> None:
    """Python on the host costs time in a hundred places; garbage collection causes two of them."""
    run = prepared(app_data, RECORDINGS / "collected_garbage" / "trace.json.gz")
    recording = run.traces[0].id
    ask = f"/api/v1/runs/{run.id}/timeline/{{}}?recording={recording}&device=0&"
    with library().open(recording) as opened:
        origin = timeline.extent(opened).start_ns
        calls = opened.rows(
            "SELECT p.start_ns, p.start_ns + p.dur_ns FROM named_python_calls p JOIN steps t ON counted AND p.start_ns BETWEEN host_start_ns AND host_end_ns "
            "WHERE p.name LIKE '%function collect>' ORDER BY 1"
        )
        gaps = opened.rows("SELECT start_ns, end_ns FROM gaps WHERE cause = 'python_host' ORDER BY end_ns - start_ns DESC")
    places = client.get(ask.format("occurrences") + "rule=garbage-collection").json()["places"]
    assert [tuple(place) for place in places] == [(start - origin, end - origin) for start, end in calls]
    assert len(gaps) > 10 * len(calls)
    beside = next((s, e) for s, e in gaps if not any(s < end and e > start for start, end in calls))
    for (start, _), ours in ((gaps[0], True), (beside, False)):
        text = client.get(ask.format("slice") + f"source=gaps&id={start - origin}").json()
        assert (text["finding"] is not None and text["finding"]["rule"] == "garbage-collection") == ours
        assert (text["to_do"] is None) == (text["finding"] is not None), "the finding's explanation replaces that of its cause"


def test_a_copy_includes_the_host_work_for_it(client: TestClient, app_data: DataFolder) -> None:
    """The GPU waits while the host computes, and the copy follows."""
    run = prepared(app_data, RECORDINGS / "mask_from_cpu" / "trace.json.gz")
    recording = run.traces[0].id
    with library().open(recording) as opened:
        origin = timeline.extent(opened).start_ns
        (start,) = opened.rows(
            "SELECT start_ns FROM gaps WHERE cause = 'host_compute' ORDER BY end_ns - start_ns DESC LIMIT 1"
        )[0]
    text = client.get(
        f"/api/v1/runs/{run.id}/timeline/slice?recording={recording}&device=0&source=gaps&id={start - origin}"
    ).json()
    assert text["finding"]["rule"] == "tensors-made-on-cpu"


def test_lost_time_links_to_its_end_and_to_the_host_call(client: TestClient, app_data: DataFolder) -> None:
    run = prepared(app_data, RECORDINGS / "mask_from_cpu" / "trace.json.gz")
    recording = run.traces[0].id
    with library().open(recording) as opened:
        origin = timeline.extent(opened).start_ns
        gaps = opened.rows(
            "SELECT start_ns, next_gpu_op_id, call_id, cpu_op_id FROM gaps WHERE device = 0 ORDER BY end_ns - start_ns DESC LIMIT 8"
        )
    assert all(any(row[column] is not None for row in gaps) for column in (1, 2, 3))
    for start, *ids in gaps:
        text = client.get(
            f"/api/v1/runs/{run.id}/timeline/slice?recording={recording}&device=0&source=gaps&id={start - origin}"
        ).json()
        led = {(link["role"], link["source"], link["id"]) for link in text["links"]}
        known = zip(("end", "call", "operator"), ("gpu", "calls", "operators"), ids, strict=True)
        assert led == {one for one in known if one[2] is not None}


TABLES = {"gpu": ("gpu_ops", "gpu_op_id"), "operators": ("cpu_ops", "cpu_op_id"), "calls": ("runtime_calls", "call_id")}


@pytest.mark.slow
def test_times_in_the_drawer_are_exact_to_the_nanosecond(client: TestClient, run: Manifest) -> None:
    recording, chance = run.traces[0].id, random.Random(11)
    base = f"/api/v1/runs/{run.id}/timeline/slice?recording={recording}&device=0"
    with library().open(recording) as opened:
        origin = opened.rows("SELECT first_ns FROM recording")[0][0]
        rows = {
            source: opened.rows(f"SELECT {key}, start_ns - {origin}, start_ns + dur_ns - {origin} FROM {table}")
            for source, (table, key) in TABLES.items()
        }
        gaps = opened.rows(f"SELECT start_ns - {origin}, start_ns - {origin}, end_ns - {origin} FROM gaps WHERE device = 0")
    for source, known in {**rows, "gaps": gaps}.items():
        for number, start, end in chance.sample(known, 25):
            reported = client.get(f"{base}&source={source}&id={number}").json()["slice"]
            assert (reported["start"], reported["end"]) == (start, end), (source, number)


def test_lost_times_of_a_range_are_sorted_by_length(client: TestClient, run: Manifest) -> None:
    recording = run.traces[0].id
    with library().open(recording) as opened:
        origin = opened.rows("SELECT first_ns FROM recording")[0][0]
        gaps = opened.rows(f"SELECT start_ns - {origin}, end_ns - start_ns, cause FROM gaps WHERE device = 0")
    middle = sorted(start for start, _, _ in gaps)[len(gaps) // 2]
    inside = sorted((row for row in gaps if row[0] + row[1] > middle), key=lambda row: (-row[1], row[0]))
    base = f"/api/v1/runs/{run.id}/timeline/longest?recording={recording}&device=0&start={middle}&end={1 << 60}"
    for nth in (0, 1, 2, len(inside) - 1):
        reported = client.get(f"{base}&nth={nth}").json()["slice"]
        assert (reported["start"], reported["end"] - reported["start"], reported["kind"]) == inside[nth]
    assert client.get(f"{base}&nth={len(inside)}").json() == {"slice": None}


def test_listed_operations_differ_where_the_list_cuts_their_names() -> None:
    elementwise = [
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{f}<float>>(int)"
        for f in ("CUDAFunctor_add", "BinaryFunctor")
    ]
    names = listed_names(["batch_norm_collect_statistics_channels_last_kernel", *elementwise])
    assert names[0] == "batch_norm_collect_statistics_channels_last_kernel"  # The name's beginning is distinct.
    assert len({name[:LISTED_LENGTH] for name in names}) == 3 and names[1].endswith("CUDAFunctor_add")
