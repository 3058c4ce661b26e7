"""Tests of the Runs screen: search, sort, a tag's history and gains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.app.page.runs import listing as page
from sawtooth.app.page.runs import table
from sawtooth.app.runs import card as run_card
from sawtooth.app.runs import listing
from sawtooth.app.runs.card import Card
from sawtooth.app.runs.listing import history, history_title, listed, matching_runs, ordered, tags
from sawtooth.ingest.manifest import Manifest, RecordingRef, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import charts, opened_at, run_of, words_of
from tests.support.paths import ROOT


def run(number: int, name: str, *tags: str, notes: str = "") -> Manifest:
    made = new_manifest([RecordingRef(f"{number:016x}", "trace", "trace.json")], name)
    return msgspec.structs.replace(made, created_ns=number, tags=list(tags), notes=notes)


RUNS = [run(1, "Alpha", "resnet", "baseline"), run(2, "beta", "resnet", notes="eight workers"), run(3, "gamma")]
READINGS = {
    RUNS[0].id: {"best_step_time_ms": Reading(300.0), "mfu": Reading(0.02)},
    RUNS[1].id: {"best_step_time_ms": Reading(60.0), "mfu": Reading(0.1)},
}


@pytest.mark.parametrize(
    ("wanted", "tag", "found"),
    [("", None, [0, 1, 2]), ("ALP", None, [0]), ("workers", None, [1]), (RUNS[2].id[:6], None, [2]), ("", "resnet", [0, 1])],
)
def test_runs_are_found_by_name_tag_note_and_id(wanted: str, tag: str | None, found: list[int]) -> None:
    assert matching_runs(RUNS, wanted, tag) == [RUNS[i] for i in found]


@pytest.mark.parametrize(
    ("by", "order"),
    [("newest", [2, 1, 0]), ("name", [0, 1, 2]), ("step_time_best_ms", [1, 0, 2]), ("mfu", [1, 0, 2]), ("busy", [2, 0, 1])],
)
def test_runs_are_sorted_with_unknown_values_last(by: str, order: list[int]) -> None:
    busy = {RUNS[0].id: 0.9, RUNS[2].id: 0.1}
    assert ordered(RUNS, by, READINGS, busy) == [RUNS[i] for i in order]


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (Card(parts=[("idle", "data_wait", 0.79), ("other_compute", None, 0.2), ("idle", "launch_latency", 0.01)], lost_to="waiting for the data loader"), "mostly waiting for the data loader"),
        (Card(parts=[("other_compute", None, 0.7), ("idle", "data_wait", 0.3)], lost_to="waiting for the data loader"), "partly waiting for the data loader"),
        (Card(parts=[("other_compute", None, 0.58), ("tensor_core_compute", None, 0.39), ("idle", "launch_latency", 0.03)]), "mostly compute, 40 % of it on tensor cores"),
        (Card(parts=[("other_compute", None, 1.0)]), "mostly compute, none of it on tensor cores"),
        (Card(parts=[("outside_profile", None, 0.65), ("other_compute", None, 0.35)]), "65 % outside the profiled steps"),
        (Card(parts=[("host_operators", None, 0.7), ("host_rest", None, 0.3)]), "70 % operators on the host"),
    ],
)  # fmt: skip
def test_a_card_names_the_largest_loss_or_the_computing_share(card: Card, said: str) -> None:
    assert page.goes_to(card).replace("\xa0", " ") == said


@pytest.mark.slow
def test_a_phone_has_one_button_for_search_and_filters(app_data: DataFolder, tmp_path: Path) -> None:
    for n in range(page.SEARCH_FROM):
        run_of(app_data, matmul_loop(step_us=1000 + n).write(tmp_path / f"{n}.json"))
    test = opened_at("runs", sort="name")
    fold = test.button(key="fold_runs")
    assert fold.label == "Find and sort: Name" and has_container(test, "runs_chosen-folded")
    assert has_container(fold.click().run(), "runs_chosen-open")


def has_container(test: AppTest, key: str) -> bool:
    blocks = [test.main]
    while blocks:
        block = blocks.pop()
        if getattr(block.proto, "id", "").endswith(key):
            return True
        blocks += [child for child in getattr(block, "children", {}).values() if hasattr(child, "children")]
    return False


def test_a_telemetry_gap_is_not_an_idle_gpu() -> None:
    assert table._row("", RUNS[0], Card(utilization=[0.5, None, 0.7]), {}, {})["utilization"] == [0.5, 0.7]
    assert table._row("", RUNS[0], Card(), {}, {})["utilization"] is None


def test_examples_are_listed_until_the_first_own_run() -> None:
    example, other = (msgspec.structs.replace(run(n, "example"), bundled=True) for n in (4, 5))
    assert listed([example, other]) == [example, other]
    assert listed([example, RUNS[0], other]) == [RUNS[0]]
    assert listed([example, RUNS[0], other], [other.id]) == [RUNS[0], other]


def test_the_history_of_a_tag_is_in_order_of_time() -> None:
    assert tags(RUNS) == ["baseline", "resnet"]
    rows = history(matching_runs(RUNS[::-1], "", "resnet"), READINGS)
    assert rows["name"].tolist() == ["Alpha", "beta"]
    assert rows["step_ms"].tolist() == [300, 60]
    title = history_title("resnet", rows).replace("\u00a0", " ")
    assert title == "resnet, 2 runs: step 300 ms → 60.0 ms, MFU 2.0 % → 10 %"
    assert "no two of them" in history_title("x", history(RUNS[2:], READINGS))


def runs_page(**query: str) -> AppTest:
    test = AppTest.from_file(str(ROOT / "app" / "dashboard.py"), default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    return test.run()


def test_the_list_is_shown_before_the_runs_are_analysed(four_new: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    jobs = SimpleNamespace(all=list, analyse=lambda run_id: asked.add(run_id) or SimpleNamespace(stage="waiting"))
    monkeypatch.setattr(page, "jobs", lambda: jobs)
    monkeypatch.setattr(run_card, "card_of", lambda *_: pytest.fail("the page analyses a run itself"))
    assert runs_page().dataframe[0].value["headline"].tolist() == ["Is being analysed …"] * 4
    assert asked == set(four_new)


def test_the_address_filters_runs_and_a_tag_shows_its_history(four: list[str]) -> None:
    test = runs_page(show="Cards")
    test.selectbox("tag").select("nightly").run()
    said = words_of(test).replace("\u00a0", " ")
    assert "nightly, 2 runs: step 1.00 ms → 0.80 ms" in said
    assert len(charts(test)) == 1
    assert {box.key for box in test.checkbox} == {f"pick-{run}" for run in four[:2]}
    test.text_input("find").input("run1").run()
    assert [box.key for box in test.checkbox] == [f"pick-{four[1]}"]


def test_runs_can_be_sorted_by_speed(four: list[str]) -> None:
    test = runs_page(show="Cards")
    test.selectbox("sort").select("step_time_best_ms").run()
    assert [box.key for box in test.checkbox] == [f"pick-{four[i]}" for i in (1, 2, 0, 3)]


def test_a_table_has_a_row_per_run_and_selected_rows_are_compared(four: list[str]) -> None:
    test = AppTest.from_file(str(ROOT / "app" / "dashboard.py"), default_timeout=60)
    rows = test.run().dataframe[0].value
    assert rows["step_ms"].tolist() == pytest.approx([1.1, 0.9, 0.8, 1.0], rel=0.03)  # newest first
    assert not test.checkbox
    order = list(test.dataframe[0].proto.column_order)
    # There is one GPU, no group and no chain.
    assert order[:2] == ["run", "step_ms"] and not {"gpu", "group", "last_change"} & set(order)
    test.selectbox("group").select("tag").run()
    assert test.dataframe[0].value["group"].tolist() == ["nightly", "nightly", listing.NO_TAG, listing.NO_TAG]


@pytest.mark.parametrize(
    ("step_ms", "after", "said"),
    [
        (776.0, (156.0, 154.0, 205.0), "5.0 ×"),  # 776 ÷ 156 = 4.97
        (27.8, (3.5, 1.5, 5.86), "7.9 ×"),  # The same as on the Verdict, which also shows the range.
        (10.0, (10.0, 9.0, 11.0), None),
        (625.0, (24.4, 24.4, 625.0), "up to 26 ×"),  # An upper limit: the gain may be 0.
        (10.0, None, None),
        (None, (1.0, 1.0, 1.0), None),
    ],
)
def test_the_possible_gain_of_a_run(step_ms: float | None, after: tuple[float, float, float] | None, said: str | None) -> None:
    gained = listing.gain(step_ms, after)
    assert (gained and gained.replace("\u00a0", " ")) == said


def test_a_narrow_table_shortens_gpus_and_changes() -> None:
    names = [
        "NVIDIA H200",
        "8 × NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-40GB",
        "AMD Instinct MI300X",
        "Tesla V100-SXM2-16GB",
        "",
    ]
    assert list(map(listing.short_gpu, names)) == ["H200", "8 × H100", "A100-SXM4-40GB", "MI300X", "V100-SXM2-16GB", ""]
    lines = [
        "Train under bf16 autocast: 43.9 → ≈ 9.23 ms",
        "Pad it: up to 600 ms of each 625 ms step",
        "Healthy: the GPU is busy 99 %",
        "Set num_workers: 8",
        "Compile the model: ≈\u00a07.49 → ≈\u00a05.15 ms",
    ]
    actions = ["Train under bf16 autocast", "Pad it", "Healthy", "Set num_workers: 8", "Compile the model"]
    assert list(map(listing.to_do, lines)) == actions


def test_a_measured_change_says_if_it_is_slower() -> None:
    assert listing.change(50.8, 39.0).replace("\u00a0", " ") == "50.8 → 39.0 ms"
    assert listing.change(11.2, 12.6).replace("\u00a0", " ") == "11.2 → 12.6 ms, slower"


def test_the_run_with_the_largest_certain_gain_is_named() -> None:
    # At most 60 % and 52 % of the step remain.
    wide, narrow = (("wide", 100.0, (20.0, 10.0, 60.0), 3), ("narrow", 10.0, (5.0, 4.8, 5.2), 1))
    assert listing.most_to_gain([wide, narrow]).replace("\u00a0", " ") == "narrow can gain most: 2.0 × as fast with one change"
    worse = ("worse", 100.0, (20.0, 10.0, 30.0), 2)
    assert listing.most_to_gain([wide, worse]).replace("\u00a0", " ") == "worse can gain most: 5.0 × as fast with both changes"
    assert listing.most_to_gain([narrow, ("healthy", 10.0, None, 1), ("slower", 10.0, (9.0, 8.0, 11.0), 1)]) is None


def test_a_trial_is_not_the_first_named_run(four: list[str], app_data: DataFolder) -> None:
    run = app_data.read_manifest(four[0])
    for own, tries in ((["try=1"], False), (["after=x"], False), (["try=1", "after=x"], True)):
        assert listing.tries(msgspec.structs.replace(run, tags=own)) == tries


def test_a_run_that_applied_a_change_shows_it(four: list[str], app_data: DataFolder) -> None:
    app_data.write_manifest(msgspec.structs.replace(app_data.read_manifest(four[1]), tags=[f"after={four[0]}"]))
    rows = runs_page().dataframe[0].value.set_index("id")
    before = app_data.read_manifest(four[0]).name
    assert rows.loc[four[1], "last_change"].replace("\u00a0", " ") == f"{before}: 1.00 → 0.80 ms"
    assert not rows.loc[four[2], "last_change"]


def test_the_headline_names_the_loss_of_most_runs() -> None:
    assert listing.headline(["a slow loader", "", "a slow loader"]) == "2 of 3 runs lose most to a slow loader"
    assert listing.headline(["a slow loader", "", "launches"]) is None
