"""Tests of the Idle screen: causes, waits, and estimates that leave little or no idle time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sawtooth.analysis.run import verdict
from sawtooth.analysis.run.verdict import StepPart
from sawtooth.app.words import lost_time
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.pages import opened, run_of, words_of
from tests.support.paths import RECORDINGS

WORK = StepPart("other_compute", None, 0.7, 0.7)


def page(monkeypatch: pytest.MonkeyPatch, run: str, left: tuple[StepPart, ...]):
    """Open Idle with an estimated step of WORK and ``left``, and launches of 0.3 ms in the profile."""
    profiled = (WORK, StepPart("idle", "launch_bound", 0.3, 0.3))
    for module in (verdict, lost_time):
        monkeypatch.setattr(module, "parts_of", lambda rank, column: (WORK, *left) if column == "unprofiled" else profiled)
    return opened("idle", run)


def test_an_estimate_without_idle_time_is_reported(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    text = words_of(page(monkeypatch, loop, ()))
    assert "Without the profiler, the GPU does not wait (estimated)" in text
    assert "Under the profiler 300\u00a0µs of each profiled step is lost." in text


def test_each_cause_is_listed_once_with_its_bar(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    left = (StepPart("idle", "python_host", 0.2, 0.2), StepPart("idle", "launch_bound", 0.1, 0.1))
    text = words_of(page(monkeypatch, loop, left))
    assert text.count("Kernel launches") == 1
    assert text.index("width:100.00%") < text.index("width:50.00%")  # 0.2 and 0.1 ms
    assert "python on the host" not in text  # Python is a name


def test_the_change_for_the_largest_cause_comes_before_the_causes(app_data: DataFolder) -> None:
    recording = RECORDINGS / "mlp_eager"
    test = opened("idle", run_of(app_data, recording / "trace.json.gz", recording / "nvml.jsonl"))
    text = words_of(test)
    answer = text[: text.index("The GPU waits for")]
    assert re.search(r"First change: .+: \S+ → ≈", answer)
    assert "Most of it is " in answer


def test_general_advice_is_only_next_to_its_cause(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    text = words_of(page(monkeypatch, loop, (StepPart("exposed_memcpy", None, 0.3, 0.3),)))
    answer, causes = text.split("The GPU waits for", 1)
    assert "What helps: " not in answer and "Change " not in answer and "Send fewer bytes" in causes


def test_waits_of_every_cause_of_the_profile_can_be_chosen(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """The listed waits are those of the profile, where another cause may be the largest."""
    launches, copies = StepPart("idle", "launch_bound", 0.3, 0.3), StepPart("exposed_memcpy", None, 0.2, 0.2)
    for module in (verdict, lost_time):
        monkeypatch.setattr(
            module, "parts_of", lambda rank, column: (WORK, copies) if column == "unprofiled" else (WORK, launches, copies)
        )
    chosen = opened("idle", loop).button_group(key="cause")
    assert [option.content for option in chosen.proto.options] == ["kernel launches", "copy not overlapped"]


@pytest.mark.parametrize(
    ("place", "with_stack", "said"),
    [
        ("train.py:96 in step (73 %)", True, "Most of it is at train.py:96 in step (73 %)."),
        ("before cudaLaunchKernel (70 %)", True, "Most of it is before cudaLaunchKernel (70 %)."),
        ("aten::nonzero (90 %)", True, "Most of it is in aten::nonzero (90 %)."),
        (
            "aten::nonzero (90 %)",
            False,
            "Most of it is in aten::nonzero (90 %). To record your own line, use `sawtooth run --stacks`.",
        ),
    ],
)
def test_the_largest_part_is_named_with_its_line_or_advice_to_record_it(place: str, with_stack: bool, said: str) -> None:
    assert lost_time.largest_part(place, with_stack=with_stack) == said


def test_a_remainder_is_named_everything_else(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    words = words_of(page(monkeypatch, loop, (StepPart("idle", "profiler", 0.1, 0.1),)))
    assert "is lost to everything else" in words and "Everything else" in words


def copying_loop() -> ChromeTrace:
    """Return steps of 1,000 µs: 300 of an asynchronous copy, then 600 of a product.

    aten::to launched the copy, and the product was queued during it.
    """
    trace = ChromeTrace()
    for at in range(0, 4000, 1000):
        trace.step(3 + at // 1000, at, at + 1000)
        trace.op("aten::to", at + 10, at + 40)
        trace.launch((at + 20, at + 30), (at + 50, at + 350), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
        trace.op("aten::mm", at + 60, at + 320)
        trace.launch((at + 100, at + 110), (at + 352, at + 952), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT")
    return trace


def test_a_copy_has_its_own_place_waits_and_advice(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, copying_loop().write(tmp_path / "copies.json"))
    test = opened("idle", run)
    text = words_of(test).replace("\u00a0", " ")
    assert "aten::to (100 %)" in text
    assert "in aten::mm" not in text  # aten::mm ran on the host at that time.
    test.button_group(key="cause").select("exposed_memcpy").run()
    words = words_of(test)
    (pieces,) = (table.value for table in test.dataframe if "where" in table.value)
    assert set(pieces["label"]) == {"copy not overlapped"}
    assert "Send fewer bytes" in words and "Record more" not in words


def test_a_wait_is_shown_at_the_user_line_without_object_addresses(app_data: DataFolder) -> None:
    recording = RECORDINGS / "gpt_reads_stack"
    test = opened("idle", run_of(app_data, recording / "trace.json.gz", recording / "nvml.jsonl"))
    where = next(table.value["where"] for table in test.dataframe if "where" in table.value)
    assert where.str.contains(r"\.py:\d+ in \w+").any()
    assert " object at 0x" not in words_of(test) and not where.str.contains("0x").any()


def test_idle_names_the_largest_cause_and_the_longest_wait(loop: str) -> None:
    test = opened("idle", loop)
    text = words_of(test)
    # 327 of the run's 1,027 µs; the GPU works for the other 700. The profiled value is in small print next to it.
    assert "≈\u00a00.33\u00a0ms of each 1.03\u00a0ms step is lost" in text
    assert text.count("as profiled") >= 1 and "Together" in text
    rows = test.dataframe[0].value  # The table of the chart.
    assert rows["recorded_ms"].sum() == pytest.approx(0.3)  # 300 of 1000 µs
    waits = next(d.value for d in test.dataframe if "evidence" in d.value)
    assert waits["ms"].is_monotonic_decreasing
    assert waits["ms"].sum() == pytest.approx(0.9)  # Three counted steps.
    assert "Show on the timeline" in text


def test_idle_shows_place_and_advice_for_each_cause(loop: str) -> None:
    text = words_of(opened("idle", loop))
    assert "The GPU waits for" in text and "Most of it in" in text and "What helps" in text
    assert "(100\u00a0%)" in text  # All of it is in one place.


def test_a_wait_in_a_loader_has_its_common_name() -> None:
    from sawtooth.app.words import causes

    assert causes.place("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") == "the DataLoader's next batch"
    assert causes.place("aten::copy_") == "aten::copy_"
    assert {causes.helps(owner, None) for owner in ("exposed_comm", "exposed_memcpy", "idle")}.isdisjoint({""})


def test_waits_name_the_place_first(loop: str) -> None:
    test = opened("idle", loop)
    waits = next(d for d in test.dataframe if "evidence" in d.value)
    assert list(waits.proto.column_order)[:2] == ["ms", "label"]
    assert "operator" not in waits.proto.column_order
    assert "Ended by: " in words_of(test)
