"""Tests of a newcomer's first minutes: an example's answer comes first, and no page is a dead end.

Examples are separate from own runs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.bundled_examples import import_bundled
from sawtooth.app.jobs.first_answer import first_answer
from sawtooth.app.jobs.queue import Jobs
from sawtooth.app.runs.card import card_of
from sawtooth.app.server import process
from sawtooth.app.settings import Settings
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.grouping import overlapping_telemetry
from sawtooth.ingest.runs.manifests import delete_run
from sawtooth.ingest.schema import DataFolder
from tests.support import sampled_loop
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import opened_at, words_of
from tests.support.prepared import prepared


def example(data: DataFolder, folder: Path) -> Manifest:
    manifest = msgspec.structs.replace(prepared(data, *sampled_loop.full_queue(folder), name="an example"), bundled=True)
    data.write_manifest(manifest)
    return manifest


def own(data: DataFolder, folder: Path, name: str, step_us: int = 1000, later_s: int = 0) -> Manifest:
    loop = matmul_loop(steps=6, step_us=step_us)
    loop.top["baseTimeNanoseconds"] += later_s * 1_000_000_000
    return prepared(data, loop.write(folder / f"{name}.json"), name=name)


def _plain(text: str) -> str:
    """Return a text in which lines may break between a number and its unit."""
    return text.replace("\u00a0", " ")


def run_names(test: AppTest) -> list[str]:
    return list(next(box for box in test.sidebar.selectbox if box.label == "Run").options)


def test_the_first_sentence_is_the_example_s_verdict_with_its_gain(app_data: DataFolder, tmp_path: Path) -> None:
    manifest = example(app_data, tmp_path)
    library = Library(app_data)
    card = card_of(manifest, library)
    library.close()
    assert "Give the loader more workers: " in card.headline and "→ ≈" in card.headline
    assert _plain(words_of(opened_at("runs"))).index(_plain(card.headline)) < 300  # The page's first sentence.


def test_the_shipped_answer_is_shown_until_the_example_is_ingested(
    app_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(Settings(app_data), command=lambda folder: ["sleep", "30"])
    monkeypatch.setattr(process, "jobs", lambda: jobs)
    ships = first_answer()
    assert ships is not None
    try:
        assert _plain(ships.headline) not in _plain(words_of(opened_at("runs")))  # Nothing is being read.
        import_bundled(jobs, app_data)
        assert _plain(words_of(opened_at("runs"))).index(_plain(ships.headline)) < 300
    finally:
        jobs.close()


def test_the_first_own_run_hides_the_examples_but_not_their_links(app_data: DataFolder, tmp_path: Path) -> None:
    bundled = example(app_data, tmp_path)
    assert run_names(opened_at("verdict")) == ["an example"]
    own(app_data, tmp_path, "mine")
    runs = opened_at("runs")
    assert run_names(opened_at("verdict")) == ["mine"]
    assert "Your own runs hide 1 example. It is still here:" in words_of(runs)
    assert any(f"run={bundled.id}" in link.proto.query_string for link in runs.get("page_link"))
    linked = opened_at("verdict", run=bundled.id)
    assert linked.session_state["run"] == bundled.id
    assert "Give the loader more workers" in words_of(linked)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("came_from", "expected"), [(0, (0, 1)), (1, (0, 1)), (2, (1, 2))])
def test_compare_opens_with_the_previously_opened_run(
    app_data: DataFolder, tmp_path: Path, came_from: int, expected: tuple[int, int]
) -> None:
    runs = []
    for at, name in enumerate(("first", "second", "third")):
        manifest = own(app_data, tmp_path, name, 1000 + 100 * at)
        runs.append(manifest.id)
        app_data.write_manifest(msgspec.structs.replace(manifest, created_ns=at + 1))
    test = opened_at("compare", run=runs[came_from])
    assert (test.query_params["a"], test.query_params["b"]) == tuple(runs[i] for i in expected)


def test_compare_with_uses_the_earlier_run_as_the_first_side(app_data: DataFolder, tmp_path: Path) -> None:
    later, earlier = own(app_data, tmp_path, "later", 1000, later_s=3600), own(app_data, tmp_path, "earlier", 1100)
    for run in (later, earlier):
        links = opened_at("verdict", run=run.id).get("page_link")
        (offered,) = (link.proto.query_string for link in links if link.proto.label in ("later", "earlier"))
        assert offered.endswith(f"a={earlier.id}&b={later.id}")


def test_telemetry_of_the_same_time_can_be_attached_by_a_button(app_data: DataFolder, tmp_path: Path) -> None:
    trace, telemetry = sampled_loop.write(tmp_path)
    run = prepared(app_data, trace, name="traced")
    samples = prepared(app_data, telemetry, name="sampled")
    (tmp_path / "later").mkdir()
    prepared(app_data, sampled_loop.write(tmp_path / "later", later_s=3600)[1], name="an hour later")
    (tmp_path / "just").mkdir()
    just = prepared(app_data, sampled_loop.write(tmp_path / "just", later_s=20)[1], name="begun when the trace had ended")
    assert {found.id for found in overlapping_telemetry(app_data, run)} == {samples.id, just.id}
    delete_run(app_data, just.id)
    test = opened_at("verdict", run=run.id)
    assert "Telemetry was sampled at the time of this trace: sampled." in words_of(test)
    next(b for b in test.button if b.label == "Attach").click().run()
    assert [ref.kind for ref in app_data.read_manifest(run.id).recordings] == ["trace", "telemetry"]
    assert "Telemetry was sampled at the time" not in words_of(test)


@pytest.mark.slow
def test_the_viewer_chooses_among_several_telemetry_recordings(app_data: DataFolder, tmp_path: Path) -> None:
    trace, telemetry = sampled_loop.write(tmp_path)
    run = prepared(app_data, trace, name="traced")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "nvml.jsonl"
    other.write_bytes(b"".join(telemetry.read_bytes().splitlines(keepends=True)[:-1]))  # The file is from another sampler.
    first, second = (prepared(app_data, path, name=name) for path, name in ((telemetry, "one"), (other, "another")))
    assert {found.id for found in overlapping_telemetry(app_data, run)} == {first.id, second.id}
    test = opened_at("verdict", run=run.id)
    assert "Telemetry was sampled at the time of this trace: 2 recordings." in words_of(test)
    asked = next(box for box in test.selectbox if box.label == "Telemetry")
    assert set(asked.options) == {"one", "another"}
    asked.select("another").run()
    next(b for b in test.button if b.label == "Attach").click().run()
    assert app_data.read_manifest(run.id).telemetry == second.telemetry
