"""Tests of the two runs that a comparison shows by default."""

from __future__ import annotations

from sawtooth.app.page.default_pair import likely_pair
from sawtooth.ingest.manifest import Manifest


def run(name, *, tags=(), shapes=""):
    return Manifest(name.encode().hex()[:16].ljust(16, "0"), name, [], tags=list(tags), notes=shapes)


def products(manifest):
    return frozenset(manifest.notes)


def names(pair):
    return tuple(manifest.name for manifest in pair) if pair is not None else None


NEWEST_FIRST = [
    run("llama", shapes="abcdef"),
    run("resnet-fixed", shapes="uvwxyz"),
    run("gpt-2", shapes="klmnop"),
    run("resnet-50", shapes="uvwxyz12"),
    run("marks of gpt"),
]


def test_the_newest_two_runs_with_the_same_work_are_compared():
    assert names(likely_pair(NEWEST_FIRST, None, products)) == ("resnet-50", "resnet-fixed")


def test_the_opened_run_is_compared_with_one_of_the_same_work():
    at = {manifest.name: manifest.id for manifest in NEWEST_FIRST}
    assert names(likely_pair(NEWEST_FIRST, at["resnet-fixed"], products)) == ("resnet-50", "resnet-fixed")
    assert names(likely_pair(NEWEST_FIRST, at["resnet-50"], products)) == ("resnet-50", "resnet-fixed")  # No run is earlier.
    assert likely_pair(NEWEST_FIRST, at["llama"], products) is None


def test_without_a_matching_run_none_is_chosen():
    assert likely_pair([run("llama", shapes="abcdef"), run("gpt", shapes="klmnop")], None, products) is None
    assert likely_pair([run("alone")], None, products) is None


def test_without_shapes_names_tags_and_predecessors_decide():
    assert names(likely_pair([run("mnist fast"), run("mnist-slow")], None, products)) == ("mnist-slow", "mnist fast")
    assert names(likely_pair([run("b", tags=["nightly"]), run("a", tags=["nightly"])], None, products)) == ("a", "b")
    assert likely_pair([run("b"), run("a")], None, products) is None
    assert likely_pair([run("7"), run("8")], None, products) is None  # An empty word is not a name.
    # all matrix products that both have
    assert names(likely_pair([run("b", shapes="xy"), run("a", shapes="xy")], None, products)) == ("a", "b")
    other = run("b", tags=["after=a"], shapes="abcdef")
    assert names(likely_pair([other, run("a", shapes="klmnop")], None, products)) == ("a", "b")


def test_two_programs_with_one_name_are_not_compared():
    # `train.py` and `python -m rl.train` are both called train.
    recorded = [
        Manifest(f"{i:016x}", "train", [], notes=f"Recorded by `sawtooth run {command}`.\nNo profile: the loop ended.")
        for i, command in enumerate(("python -m rl.train --steps 300", "train.py --workers 0", "python train.py --workers 8"))
    ]
    newest, before, oldest = recorded
    assert likely_pair([newest, before], None) is None
    assert likely_pair(recorded, None) == (oldest, before)


def test_the_program_is_a_fact_of_the_run_and_stays_when_its_notes_are_edited():
    newest, before, oldest = (
        Manifest(f"{i:016x}", "train", [], notes="mine", command=command.split())
        for i, command in enumerate(("-m rl.train --steps 300", "train.py --workers 0", "python train.py --workers 8"))
    )
    assert likely_pair([newest, before], None) is None
    assert likely_pair([newest, before, oldest], None) == (oldest, before)
