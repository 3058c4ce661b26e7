"""Tests of the names that lists show for runs of one script."""

from __future__ import annotations

import msgspec

from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.ingest.manifest import Manifest, RecordingRef, new_manifest


def run(number: int, name: str, command: str = "", **settings: str) -> Manifest:
    made = new_manifest([RecordingRef(f"{number:016x}", "trace", "trace.json")], name)
    return msgspec.structs.replace(made, id=str(number), created_ns=number, command=command.split(), settings=settings)


def test_runs_of_one_script_are_numbered_and_named_by_their_difference() -> None:
    runs = [
        run(3, "train", "python train.py --workers 8 --epochs 3", batch="64"),
        run(1, "train", "python train.py --epochs 3", batch="64"),
        run(2, "eval", "python train.py --workers 8 --epochs 3"),
    ]
    assert distinct_names(runs) == {"1": "train #1", "2": "eval", "3": "train #2 · --workers 8"}


def test_a_further_run_does_not_change_the_numbers_of_older_ones() -> None:
    two = [run(1, "job"), run(2, "job")]
    assert distinct_names(two) == {"1": "job #1", "2": "job #2"}
    assert distinct_names([run(3, "job", batch="8"), *two]) == {"1": "job #1", "2": "job #2", "3": "job #3 · batch 8"}


def test_names_that_differ_only_after_the_cut_are_numbered() -> None:
    names = distinct_names([run(1, "a" * 30 + "x"), run(2, "a" * 30 + "y")], 20)
    assert len(set(names.values())) == 2


def test_secrets_ports_paths_and_relations_are_no_part_of_a_name() -> None:
    commands = (f"torchrun --master-port {port} train.py --api-key {port} --out /data/{port}" for port in (29500, 29501))
    runs = [run(number, "train", command) for number, command in enumerate(commands, 1)]
    tagged = [msgspec.structs.replace(runs[0], tags=["after=train"]), runs[1]]
    assert set(distinct_names(tagged).values()) == {"train #1", "train #2"}
