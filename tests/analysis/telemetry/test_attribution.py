"""Tests of matching a sampled GPU to a rank: by UUID, by process, or because one is left.

It is never guessed among several.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.attribution import TraceDevice, attribute, unassigned_sentence
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.signal.steady import SteadyPart
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job

H200 = "NVIDIA H200"


def sampled(
    device: int, util_pct: float = 90.0, *, recording: str = "t", name: str = H200, uuid: str | None = None, host: str | None = "a",
    pids: tuple[int, ...] = (), profiled: bool = False,
) -> DeviceTelemetry:  # fmt: skip
    return DeviceTelemetry(
        recording, device, name, uuid, 0, 10**10, {}, 1.0, SteadyPart(0, 10**10), {"util_pct": util_pct}, None, None, None, None,
        Sawtooth(None, "steady", None), (), (), host=host, pids=pids, profiled=profiled,
    )  # fmt: skip


def traced(
    recording: str, device: int = 0, *, uuid: str | None = None, host: str | None = "a", pid: int | None = None
) -> TraceDevice:
    return TraceDevice(recording, device, H200, host, uuid, frozenset() if pid is None else frozenset({pid}))


def who(found: Sequence[DeviceTelemetry], devices: Sequence[TraceDevice]) -> dict[str, tuple[str, int]]:
    return {recording: (t.recording_id, t.device) for (recording, _), t in attribute(found, devices).items()}


def test_uuid_decides_regardless_of_ordinals_and_spelling() -> None:
    found = [sampled(0, uuid="GPU-aa"), sampled(1, uuid="GPU-bb")]
    ranks = [traced("r0", uuid="bb"), traced("r1", uuid="GPU-AA")]
    assert who(found, ranks) == {"r0": ("t", 1), "r1": ("t", 0)}


def test_only_gpu_with_another_uuid_host_or_model_is_not_assigned() -> None:
    rank = traced("r0", uuid="GPU-cc")
    assert who([sampled(0, uuid="GPU-aa")], [rank]) == {}
    assert who([sampled(0, host="b")], [traced("r0")]) == {}
    assert who([sampled(0, name="NVIDIA A100")], [traced("r0")]) == {}
    # A trace without a host's name may be from any host.
    assert who([sampled(0, host="b")], [traced("r0", host=None)]) == {"r0": ("t", 0)}


def test_process_identifies_the_gpu_without_a_uuid() -> None:
    found = [sampled(0, pids=(70,)), sampled(1, pids=(71, 4))]
    assert who(found, [traced("r0", pid=71), traced("r1", pid=70)]) == {"r0": ("t", 1), "r1": ("t", 0)}
    # Several processes share the first GPU, which is reported. One process uses two GPUs, which is not reported.
    assert who([sampled(0, pids=(70,)), sampled(1, pids=(70,))], [traced("r0", pid=70), traced("r1", pid=71)]) == {}


def test_only_working_gpu_is_assigned_to_a_single_trace() -> None:
    idle, works = sampled(0, 3.0), sampled(2, 80.0)
    assert who([idle, works], [traced("r0")]) == {"r0": ("t", 2)}
    # A GPU at 10 % may also be the right one.
    assert who([sampled(0, 10.0), works], [traced("r0")]) == {}


def test_ordinals_identify_several_ranks_if_they_match_working_gpus() -> None:
    found = [sampled(0), sampled(1), sampled(2, 1.0)]
    assert who(found, [traced("r1", 1), traced("r0", 0)]) == {"r1": ("t", 1), "r0": ("t", 0)}
    assert who(found, [traced("r1", 0), traced("r0", 0)]) == {}  # Each process sees one GPU, so ordinals show nothing.
    assert who([sampled(4), sampled(5)], [traced("r1", 1), traced("r0", 0)]) == {}  # CUDA_VISIBLE_DEVICES=4,5, perhaps 5,4


def test_sampled_gpu_is_not_assigned_to_two_ranks() -> None:
    ranks = [traced("r0"), traced("r1", 1)]
    assert who([sampled(0)], ranks) == {}
    # There are two hosts with one GPU each. Each trace gets the GPU of its own host.
    assert who([sampled(0), sampled(0, recording="u", host="b")], [traced("r0"), traced("r1", host="b")]) == {
        "r0": ("t", 0),
        "r1": ("u", 0),
    }


def test_identified_rank_leaves_other_gpus_to_other_ranks() -> None:
    found = [sampled(0, uuid="GPU-aa"), sampled(1, uuid="GPU-bb")]
    assert who(found, [traced("r0", uuid="GPU-bb"), traced("r1")]) == {"r0": ("t", 1), "r1": ("t", 0)}


def test_counters_in_a_trace_belong_to_its_devices_unless_sampled_separately() -> None:
    inside = sampled(0, recording="r0", profiled=True)
    assert who([inside], [traced("r0")]) == {"r0": ("r0", 0)}
    assert who([inside, sampled(0)], [traced("r0")]) == {"r0": ("t", 0)}


def test_unassigned_gpus_are_reported() -> None:
    found, ranks = [sampled(0), sampled(1)], [traced("r0"), traced("r1")]
    answer = unassigned_sentence(ranks, found, attribute(found, ranks))
    assert answer is not None and "which of the 2 sampled GPUs" in answer
    assert unassigned_sentence(ranks, [], {}) is None
    strange = [sampled(0, host="b"), sampled(1, name="NVIDIA A100")]
    assert (unassigned_sentence(ranks, strange, attribute(strange, ranks)) or "").startswith(
        "The telemetry is of another GPU or host"
    )
    one = [traced("r0", uuid="GPU-aa")]
    assert unassigned_sentence(one, [sampled(0, uuid="GPU-aa")], attribute([sampled(0, uuid="GPU-aa")], one)) is None


def test_trace_with_a_uuid_finds_its_telemetry(tmp_path: Path) -> None:
    lines = [{"meta": True, "gpus": [{"gpu": g, "name": H200, "uuid": f"GPU-{'ab'[g]}"} for g in (0, 1)]}]
    lines += [{"t_ns": 1_790_000_000_000_000_000 - i * 10**8, "gpu": g, "gpu_util": 90 - g} for i in range(60) for g in (0, 1)]
    (tmp_path / "nvml.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = []
    for named in (True, False):
        traces = job(2, 2, Planted())
        for rank, trace in enumerate(traces):
            trace.top |= {"gpu_uuids": {"0": f"GPU-{'ba'[rank]}"}} if named else {}
        paths = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)]
        data = DataFolder(tmp_path / f"data{named}").create()
        (run,) = ingest_into_runs(data, [(path, path.name) for path in [*paths, tmp_path / "nvml.jsonl"]]).runs
        found.append(analyse(run, Library(data)))
    named_run, unnamed = found
    assert {r.rank: r.telemetry.uuid for r in named_run.ranks if r.telemetry} == {0: "GPU-b", 1: "GPU-a"}
    assert [r.telemetry for r in unnamed.ranks] == [None, None]
    keys = [[d.key for d in item.diagnostics] for item in found]
    assert ["telemetry_not_attributed" in item for item in keys] == [False, True]
