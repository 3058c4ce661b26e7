"""Tests of the Compare screen: its address contains the whole view, and swapping works.

Missing data is named with the way to get it.
"""

from __future__ import annotations

import msgspec
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from sawtooth.app import templates
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.pages import charts, opened_at, run_of, words_of
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared


def opened(**query: str) -> AppTest:
    return opened_at("compare", **query)


def add(data: DataFolder, tmp_path, name: str, tags=(), **loop) -> str:
    path = matmul_loop(steps=6, **loop).write(tmp_path / f"{name}.json")
    manifest = prepared(data, path, name=name)
    data.write_manifest(msgspec.structs.replace(manifest, tags=list(tags)))
    return manifest.id


@pytest.fixture
def pair(app_data: DataFolder, tmp_path) -> tuple[str, str]:
    return add(app_data, tmp_path, "before", ["job"]), add(app_data, tmp_path, "after", ["job"], step_us=800, matmul_us=400)


def test_an_address_shows_the_comparison_with_its_waterfall(pair):
    test = opened(a=pair[0], b=pair[1])
    text = words_of(test)
    assert "after is faster than before, size uncertain: 1.00\u00a0ms →\u00a00.80\u00a0ms per step" in text
    assert "The step changed by −200\u00a0µs" in text
    waterfall = charts(test)[0]["data"]
    assert [bar["x"][0] for bar in waterfall] == pytest.approx([1.0, -0.2, 0.8])


def test_a_change_of_a_setting_is_shown_as_a_diff() -> None:
    html = str(templates.pieces("cards.html").changes([("Workers <b>", "1", "14", "all of the gain")], "What was changed"))
    assert "<del>1</del> → <ins>14</ins>" in html and "<b>" not in html and "all of the gain" in html


def test_the_title_of_the_tab_is_the_verdict(pair, monkeypatch):
    titles = []
    monkeypatch.setattr(st, "set_page_config", lambda **config: titles.append(config.get("page_title")))
    opened(a=pair[0], b=pair[1])
    assert titles[-1] == "after is faster than before, size uncertain: 1.00\u00a0ms → 0.80\u00a0ms per step"
    opened_at("audit", run=pair[0])
    assert titles[-1].endswith(" · before")
    opened_at("live")
    assert titles[-1] == "Live · Sawtooth"


def test_swapping_the_sides_changes_the_address_and_the_verdict(pair):
    test = opened(a=pair[0], b=pair[1])
    next(b for b in test.button if b.label == "Swap sides").click().run()
    assert (test.query_params["a"], test.query_params["b"]) == (pair[1], pair[0])
    assert "before is slower than after, size uncertain" in words_of(test)


def test_without_an_address_the_example_pair_is_opened(pair):
    test = opened()
    assert {test.query_params["a"], test.query_params["b"]} == set(pair)
    assert "The newest two runs of the same work" in words_of(test)


def test_runs_of_different_work_are_not_paired(app_data, tmp_path):
    for name, size in (("llama", 1024), ("resnet", 512)):
        trace = ChromeTrace()
        for k in range(6):
            trace.step(k, 1000 * k, 1000 * k + 950)
            trace.op("aten::mm", 1000 * k + 10, 1000 * k + 900, [[size, size], [size, size]], ["float", "float"])
        prepared(app_data, trace.write(tmp_path / f"{name}.json"), name=name)
    test = opened()
    assert "Which two runs to compare?" in words_of(test)
    assert "a" not in test.query_params
    run = app_data.manifests()[0].id
    test = opened(run=run)
    text = words_of(test)
    assert "Compare resnet with which run?" in text and "llama</b>" in text
    assert not [button for button in test.button if button.label == "Swap sides"], "there is nothing to swap"
    next(m for m in test.multiselect if m.label == "A, before").set_value([app_data.manifests()[1].id]).run()
    assert "a step" in words_of(test)


def test_selecting_another_run_changes_the_address(pair, app_data, tmp_path):
    third = add(app_data, tmp_path, "third", step_us=900, matmul_us=500)
    test = opened(a=pair[0], b=pair[1])
    (after,) = (m for m in test.multiselect if m.label == "B, after")
    assert sorted(after.options) == ["after", "third"], "before is on the other side"
    after.set_value([third]).run()
    assert test.query_params["b"] == third
    assert "Cannot tell whether before or third is faster" in words_of(test)


def test_two_runs_of_one_name_are_distinguished(pair, app_data, tmp_path):
    again = add(app_data, tmp_path, "after", step_us=900, matmul_us=500)
    test = opened(a=pair[1], b=again)
    (before,) = (m for m in test.multiselect if m.label == "A, before")
    assert sorted(before.options) == ["after #1", "before"]
    assert "after #1" in words_of(test) and "after #2" in words_of(test)


def test_the_address_restores_the_view(pair):
    test = opened(a=pair[0], b=pair[1], changed="Operators", named="add")
    table = next(f.value for f in test.dataframe if "matched_by" in f.value.columns)
    assert list(table["what"]) == ["aten::add [[1024,1024],[1024,1024],[]]"]


def test_a_missing_run_is_named_with_advice_to_add_it(pair):
    text = words_of(opened(a=pair[0], b="0123456789abcdef"))
    assert "Side B is run 0123456789abcdef, which this server does not have" in text
    assert "not complete" in text


def test_a_missing_recording_is_named(pair, app_data):
    for ref in app_data.read_manifest(pair[1]).recordings:
        app_data.recording_file(ref.id).unlink()
    assert "Side B is after, whose recording is no longer here" in words_of(opened(a=pair[0], b=pair[1]))


@pytest.mark.parametrize("address", [{"a": "<script>", "b": "../.."}, {"a": ",,", "b": "x" * 500}, {"a": "", "b": ""}])
def test_a_hostile_address_shows_a_page(pair, address):
    words_of(opened(**address))


def test_three_runs_with_a_tag_make_a_sweep(app_data, tmp_path):
    runs = [
        add(app_data, tmp_path, f"workers {n}", tags=[f"workers={n}"], step_us=step)
        for n, step in ((1, 2000), (4, 1010), (8, 1000))
    ]
    test = opened(a=runs[0], b=runs[1], more=runs[2])
    assert "workers = 4 gives" in words_of(test)
    table = next(f.value for f in test.dataframe if "throughput" in f.value.columns)
    assert list(table["value"]) == ["1", "4", "8"]
    assert list(table["note"]) == ["", "sweet spot", ""]


def test_the_page_says_that_one_run_is_not_enough(app_data, tmp_path):
    add(app_data, tmp_path, "alone")
    assert "a comparison needs two" in words_of(opened())


def test_without_gpu_work_the_page_compares_the_hosts(app_data, tmp_path):
    runs = []
    for name, mm_us in (("slow", 900), ("quick", 400)):
        trace = ChromeTrace()
        for k in range(6):
            trace.step(k, 1000 * k, 1000 * k + mm_us + 50)
            trace.op("aten::mm", 1000 * k + 10, 1000 * k + mm_us)
        runs.append(prepared(app_data, trace.write(tmp_path / f"{name}.json"), name=name).id)
    text = words_of(opened(a=runs[0], b=runs[1]))
    # 890 and 390 of the 1,000 µs between steps' ends
    assert "Operators on the host take 89\u00a0% of A" in text and "39\u00a0% of B" in text
    assert "The operator on the host that changed most: aten::mm, ▼ −500\u00a0µs per profiled step" in text
    for untrue in ("GPU waits", "uses its GPU", "time outside the profiled steps", "No kernels"):
        assert untrue not in text
    assert "On the Verdict: " in words_of(opened_at("idle", run=runs[0]))
    assert "what the host does in the whole" in words_of(opened_at("timeline", run=runs[0]))


def test_with_gpu_work_on_one_side_the_page_says_which_side_lacks_it(app_data, tmp_path):
    gpu = add(app_data, tmp_path, "gpu")
    trace = ChromeTrace()
    for k in range(6):
        trace.step(k, 1000 * k, 1000 * k + 950)
        trace.op("aten::mm", 1000 * k + 10, 1000 * k + 900)
    host = prepared(app_data, trace.write(tmp_path / "host.json"), name="host").id
    text = words_of(opened(a=host, b=gpu))
    assert "Side A has no recorded GPU work" in text
    for untrue in ("GPU waits", "makes of its GPU", "New: "):
        assert untrue not in text


def test_changes_are_next_to_the_waterfall_and_other_differences_are_folded(pair):
    test = opened(a=pair[0], b=pair[1])
    text = words_of(test)
    assert (
        text.index("The recordings do not show what was changed")
        < text.index("How many times as fast")
        < text.index("The step changed by")
        < text.index("Profiled steps: ")
    )
    folded = [expander.label for expander in test.expander]
    assert folded == [
        "The change, part by part and step by step",
        "Kernels, operators and modules",
        "Findings, audit and metrics",
        "How sure? Low confidence",
        "Compare three or more runs",
    ]
    assert not any(expander.proto.expanded for expander in test.expander)
    asked = {expander.label: expander.proto.expanded for expander in opened(a=pair[0], b=pair[1], changed="Operators").expander}
    assert asked["Kernels, operators and modules"], "a link that asks for a list shows it"
    assert "metrics side by side" in text


def test_the_first_screen_shows_size_cause_and_confidence(pair):
    text = words_of(opened(a=pair[0], b=pair[1]))
    # 1,000 → 800 µs, the product 600 → 400 µs: the saved time is tensor-core compute
    assert (
        "All 200\u00a0µs saved came from tensor-core compute. Kernels, as profiled: matrix products 600\u00a0µs →\u00a0400\u00a0µs per step (the same number, most in "
        in text
    )
    assert "). Low confidence." in text  # The interval is in the picture below.
    assert 'aria-label="The GPU waits 30\u00a0% of A&#39;s step and 38\u00a0% of B&#39;s"' in text  # 300 of 1,000 and of 800 µs
    assert text.index("saved came from tensor-core compute") < text.index("The step changed by")
    assert "clip-path:polygon(0.00% 0, 60.00% 0, 40.00% 100%, 0.00% 100%)" in text  # the product, 600 → 400 of 1,000 µs


def test_the_same_run_on_both_sides_is_not_compared(pair):
    test = opened(a=pair[0], b=pair[0])
    text = words_of(test)
    assert "A and B are the same run: before" in text and "Choose another run as A or B." in text
    assert not charts(test) and "step changed" not in text and "GPU waits" not in text and not test.dataframe


@pytest.mark.slow
def test_similar_or_long_names_are_below_the_verdict(app_data, tmp_path):
    alike = [add(app_data, tmp_path, "trace", step_us=us, matmul_us=us // 2) for us in (1000, 800)]
    text = words_of(opened(a=alike[0], b=alike[1]))
    assert "trace #2 is faster than trace #1, size uncertain" in text and "1.00\u00a0ms →\u00a00.80\u00a0ms per step" in text
    long = add(app_data, tmp_path, "gpu-node-17_21877.1763912345678901234.pt.trace", step_us=500, matmul_us=250)
    text = words_of(opened(a=alike[0], b=long))
    # 1,000 → 500 µs, the product 500 → 250 µs
    assert "Tensor-core compute 0.50 ms → 0.25 ms: 1.00 → " in text.replace("\u00a0", " ")
    assert '<span class="st-then">0.50\u00a0ms</span> per step <span class="st-badge">2.00\u00a0× as fast</span>' in text
    assert "B gpu-node-17_21877.1763912345678901234.pt.trace" in text, "the bars have the names"


def test_kernels_show_their_change_first(pair):
    test = opened(a=pair[0], b=pair[1])
    table = next(f for f in test.dataframe if "matched_by" in f.value.columns)
    assert list(table.value.columns[:2]) == ["change_ms", "what"]


def test_two_models_have_separate_answers_and_no_change(app_data):
    a, b = (run_of(app_data, RECORDINGS / name / "trace.json.gz") for name in ("gpt_reads", "channels_first"))
    text = words_of(opened(a=a, b=b))
    assert "train different models" in text and "What to change in each" in text
    assert "How well each run uses its GPU" in text
    assert "The step changed" not in text and "What was changed" not in text and "Fixed" not in text
