"""Tests of memory in use, with a snapshot whose peak, users, gaps and failed allocation are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.dumps.held_memory import DeviceMemory, held_memory
from sawtooth.analysis.dumps.stored_memory import memory_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.reports.memory_snapshot import details, headline, markdown, plain_data, text
from sawtooth.ingest.dumps.memory_snapshot import read_snapshot
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.runs.bundle import export_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.dumps import MIB, event, frame, segment, write_snapshot

SITE = "/venv/lib/python3.12/site-packages/torch"
CALL = frame("_call_impl", f"{SITE}/nn/modules/module.py", 1790)
LINEAR = [
    frame("at::linear", "Linear.cpp"),
    frame("forward", f"{SITE}/nn/modules/linear.py", 134),
    CALL,
    frame("forward", "/job/net.py", 7),
]
OWN = [frame("forward", "/job/net.py", 9), CALL, frame("step", "/job/train.py", 30)]
ADAM = [
    frame("_init_group", f"{SITE}/optim/adam.py", 200),
    frame("step", f"{SITE}/optim/adam.py", 248),
    frame("step", "/job/train.py", 31),
]
BACKWARD = [
    frame("torch::autograd::generated::MmBackward0::apply(int)", "??", 0),
    frame("torch::autograd::Engine::thread_main", "??", 0),
]
GRADIENT = [frame("torch::autograd::AccumulateGrad::apply", "??", 0), *BACKWARD[1:]]
GATHER = [
    frame("allocate", f"{SITE}/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 59),
    frame("forward", "/job/net.py", 7),
]
BATCH = [frame("at::native::_to_copy(at::Tensor const&)", "??", 0), frame("main", "/job/train.py", 12)]


def _words(*lines: str) -> str:
    return " ".join(lines).replace("\xa0", " ")


def of(tmp_path: Path, *arguments: object, **more: object) -> DeviceMemory:
    (memory,) = held_memory(read_snapshot(write_snapshot(tmp_path / "snapshot.pickle", *arguments, **more)))  # type: ignore[arg-type]
    return memory


def test_memory_at_the_peak_and_at_the_end(tmp_path: Path) -> None:
    events = [
        event("alloc", 10 * MIB, 6 * MIB, LINEAR),  # 1: before 4, then 10
        event("alloc", 20 * MIB, 2 * MIB - 100, OWN),  # 2: 12, rounded up to 512 bytes
        event("alloc", 30 * MIB, 3 * MIB, BACKWARD),  # 3: 15 MiB, the peak
        event("free_requested", 10 * MIB, 6 * MIB), event("free_completed", 10 * MIB, 6 * MIB),
        event("alloc", 40 * MIB, MIB, ADAM),  # 10 MiB
        event("free_requested", 50 * MIB, MIB),  # A block from before the recording: 9 MiB.
        event("free_requested", 30 * MIB, 3 * MIB), event("free_requested", 20 * MIB, 2 * MIB - 100),  # 4 MiB at the end
    ]  # fmt: skip
    segments = [
        segment(0, [(3 * MIB, "active_allocated"), (5 * MIB, "inactive")]),
        segment(40 * MIB, [(MIB, "active_allocated")]),
    ]
    memory = of(tmp_path, segments, events)
    assert (memory.peak_bytes, memory.peak_at_s, memory.end_bytes) == (15 * MIB, 0.002, 4 * MIB)
    assert [(held.name, held.size // MIB, held.blocks) for held in memory.categories] == [
        ("activations", 8, 2), ("allocated before the recording", 4, 2), ("temporary memory of backward", 3, 1),
    ]  # fmt: skip
    assert [(held.name, held.size // MIB) for held in memory.modules] == [
        ("nn.linear", 6),
        ("", 4),
        ("MmBackward0", 3),
        ("net.py:9", 2),
    ]
    assert [held.name for held in memory.stacks][:1] == ["forward (net.py:7)"]
    assert max(memory.curve, key=lambda point: point[1]) == (0.002, 15 * MIB)
    assert (
        _words(headline(memory))
        == "The peak of GPU 0 is 15.0 MiB: activations (53 %), then allocated before the recording (27 %)."
    )


def test_fragmentation_at_the_end(tmp_path: Path) -> None:
    segments = [
        segment(0, [(2 * MIB, "inactive"), (1 * MIB, "active_allocated"), (5 * MIB, "inactive")]),  # 7 MiB stuck
        segment(100 * MIB, [(4 * MIB, "inactive")]),  # This segment could be returned to the driver.
    ]
    memory = of(tmp_path, segments, [event("alloc", 2 * MIB, MIB, OWN)])
    cache = memory.fragmentation
    sizes = (cache.reserved_bytes, cache.used_bytes, cache.free_bytes, cache.stuck_bytes, cache.largest_free_bytes)
    assert [size // MIB for size in sizes] == [12, 1, 11, 7, 5]
    assert any("empty_cache() cannot release it" in line for line in details(memory))


@pytest.mark.parametrize("free_mib", [1, 40])
def test_a_failed_allocation_reports_the_size_that_fits(tmp_path: Path, free_mib: int) -> None:
    # The cache has gaps of 3 and 6 MiB on the stream. A later segment and another stream's gaps do not help.
    failed = event("oom", size=10 * MIB, stack=OWN, device_free=free_mib * MIB)
    events = [
        event("alloc", 3 * MIB, MIB, LINEAR),
        failed,
        event("free_requested", 3 * MIB, MIB),
        event("segment_alloc", 200 * MIB, 50 * MIB),
    ]
    segments = [
        segment(0, [(10 * MIB, "inactive")]),
        segment(200 * MIB, [(50 * MIB, "inactive")]),
        segment(300 * MIB, [(30 * MIB, "inactive")], stream=7),
    ]
    memory = of(tmp_path, segments, events)
    (at,) = memory.failed
    fitted = 6 if free_mib == 1 else 40
    assert (at.cached_free_bytes, at.largest_free_bytes, at.other_streams_bytes) == (9 * MIB, 6 * MIB, 30 * MIB)
    assert (at.fitted_bytes, at.fits_joined, at.in_use_bytes) == (fitted * MIB, True, MIB)
    assert at.purpose.line == "forward (net.py:9)"
    assert _words(headline(memory)).startswith("An allocation of 10.0 MiB failed; at most ")
    assert any("expandable_segments:True" in line for line in details(memory))
    assert plain_data([memory])[0]["failed"][0]["fitted_bytes"] == fitted * MIB


def test_an_allocation_that_never_fits_reports_the_missing_bytes(tmp_path: Path) -> None:
    events = [event("oom", size=20 * MIB, stack=OWN, device_free=2 * MIB)]
    memory = of(tmp_path, [segment(0, [(4 * MIB, "inactive")])], events)
    assert "Even if the pieces were joined, 14.0 MiB would be missing" in _words(*details(memory))  # 20 - 2 - 4 = 14 MiB


@pytest.mark.parametrize(
    ("stack", "ends", "category"),
    [
        (ADAM, False, "optimizer state"), (ADAM, True, "temporary memory of the optimizer"), (GRADIENT, True, "gradients"),
        (GATHER, True, "gathered parameters (sharded)"), (BATCH, True, "copies to the GPU, such as batches"),
        ([frame("c10d::Reducer::initialize_buckets", "??"), frame("__init__", "/job/net.py")], False, "gradient buckets (DDP)"),
        ([frame("convert", f"{SITE}/nn/modules/module.py"), frame("_apply", f"{SITE}/nn/modules/module.py")], False, "parameters and buffers"),
        ([frame("forward", "/job/net.py"), CALL, frame("recompute", f"{SITE}/utils/checkpoint.py"), frame("backward", f"{SITE}/_tensor.py")],
         True, "recomputed activations"),
        ([], True, "backward, without a Python stack"),
    ],
)  # fmt: skip
def test_purpose_of_an_allocation(tmp_path: Path, stack: list[dict[str, object]], ends: bool, category: str) -> None:
    events = [
        event("alloc", 0, MIB, stack),
        event("alloc", 8 * MIB, 1, OWN),
        *([event("free_requested", 0, MIB)] if ends else []),
    ]
    assert of(tmp_path, [], events).categories[0].name == category


def test_sharded_modules_come_from_the_ranges_around_them(tmp_path: Path) -> None:
    ranges = [
        {"stage": stage, "name": name, "device": 0, "time_us": time}
        for stage, name, time in (
            ("START", "FSDP::pre_forward (layers.3)", 900), ("START", "nccl:all_gather", 950), ("END", "nccl:all_gather", 1500),
            ("END", "FSDP::pre_forward (layers.3)", 1600),
        )
    ]  # fmt: skip
    events = [event("alloc", 0, 512, OWN), event("alloc", 8 * MIB, MIB, GATHER)]  # at 0 and 1000 µs
    assert of(tmp_path, [], events, external_annotations=ranges).modules[0].name == "layers.3"


def test_missing_stacks_and_history_of_a_snapshot_are_reported(tmp_path: Path) -> None:
    plain_events = [event("alloc", 0, MIB)]
    assert of(tmp_path, [], plain_events).categories[0].name == "unknown: recorded without stacks"
    only_now = of(tmp_path, [segment(0, [(MIB, "active_allocated")])], [])
    assert "No history was recorded" in headline(only_now)
    no_frames = [event("alloc", 0, MIB, [{"name": 3}, "x", {"filename": None}])]  # type: ignore[list-item]
    assert "backward, without a Python stack" in text([of(tmp_path, [], no_frames)])
    assert "| What it is for |" in markdown([of(tmp_path, [], plain_events)])


def test_a_stored_snapshot_equals_its_file(tmp_path: Path) -> None:
    ranges = [{"stage": "START", "name": "FSDP::pre_forward (layers.3)", "device": 0, "time_us": 2500}]
    events = [
        event("alloc", 20 * MIB, MIB, GATHER),
        event("segment_alloc", 0, 512, [frame("\ud800", "a.py")]),
        event("oom", 0, MIB, OWN, device_free=7),
    ]
    events += [event("free_requested", 20 * MIB, MIB), event("alloc", 40 * MIB, 2 * MIB, GATHER)]
    segments = [segment(8 * MIB, [(MIB, "active_allocated"), (3 * MIB, "inactive")]), segment(30 * MIB, [])]
    file = write_snapshot(tmp_path / "train-memory-rank1.pickle", segments, events, external_annotations=ranges)
    folder = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(folder, [(file, file.name)]).runs
    library = Library(folder)
    (of_file,) = held_memory(read_snapshot(file))
    assert of_file.failed and "layers.3" in [held.name for held in of_file.modules]
    assert memory_of(run, library, 1, 0) == memory_of(run, library, None, 5) == of_file
    assert memory_of(run, library, 0, 0) is None, "it is of rank 1"
    with pytest.raises(UsageError, match="cannot be removed"):
        export_runs(folder, [run.id], tmp_path / "x.sawtooth", redact=True)


def test_a_snapshot_belongs_to_the_run_profiled_at_its_time(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    trace = matmul_loop().write(tmp_path / "trace.json")
    (run,) = ingest_into_runs(folder, [(trace, "trace.json")], name="mine").runs
    events = [event("alloc", 0, MIB), event("free_requested", 0, MIB)]
    at_the_time = write_snapshot(tmp_path / "now.pickle", [], events, start_us=BASE_NS // 1000)
    later = write_snapshot(tmp_path / "later.pickle", [], events, start_us=BASE_NS // 1000 + 10**9)
    joined = ingest_into_runs(folder, [(at_the_time, "now.pickle")])
    assert [(element.id, len(element.recordings)) for element in joined.runs] == [(run.id, 2)]
    assert ingest_into_runs(folder, [(later, "later.pickle")]).runs[0].id != run.id
    assert len(ingest_into_runs(folder, [(trace, "trace.json"), (later, "later.pickle")]).runs[0].recordings) == 3
