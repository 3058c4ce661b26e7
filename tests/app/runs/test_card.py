"""Tests of a run's card: it is analysed once and follows the user's settings."""

import json
from pathlib import Path

import msgspec
import pytest

from sawtooth.analysis import result_cache as result_store
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.runs import card as run_card
from sawtooth.app.runs.card import READINGS, card_of, stored_card
from sawtooth.ingest.loop.command import ENDED_BEFORE, ENDED_WITH, RECORDED_BY, failure_of
from sawtooth.ingest.manifest import Manifest, RecordingRef, UserFacts, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, three_steps


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data").create()


@pytest.fixture
def library(folder: DataFolder):
    library = Library(folder)
    yield library
    library.close()


@pytest.fixture
def run(folder: DataFolder, tmp_path: Path) -> Manifest:
    """Return a run of three steps of 100 us, each with one kernel of 60 us.

    Its telemetry at 10 Hz has a gap of one second.
    """
    trace = three_steps().write(tmp_path / "trace.json")
    telemetry = tmp_path / "nvml.jsonl"
    times = [*range(0, 2000, 100), *range(3000, 5000, 100)]
    lines = [
        {"meta": True, "name": "NVIDIA H200", "hz": 10},
        *({"t_ns": BASE_NS + ms * 1_000_000, "gpu_util": 50} for ms in times),
    ]
    telemetry.write_text("\n".join(json.dumps(line) for line in lines))
    return ingest_into_runs(folder, [(trace, trace.name), (telemetry, telemetry.name)]).runs[0]


def test_a_card_has_the_gpu_the_first_line_and_the_sawtooth(run: Manifest, library: Library) -> None:
    card = card_of(run, library)
    assert card.gpu == "NVIDIA H200"
    assert set(card.readings) == set(READINGS)
    assert "GPU is busy" in card.headline  # Telemetry shows another step without a reason, so no gain is predicted.
    assert (card.utilization, card.utilization_of) == ([0.5] * 20 + [None] + [0.5] * 20, "util_pct")
    assert card.problem is None
    assert sum(share for _, _, share in card.parts) == pytest.approx(1.0) and card.parts[0][2] == max(p[2] for p in card.parts)


def test_a_card_shows_the_gpu_s_activity_where_it_was_sampled(folder: DataFolder, library: Library, tmp_path: Path) -> None:
    trace, telemetry = three_steps().write(tmp_path / "trace.json"), tmp_path / "nvml.jsonl"
    samples = [{"t_ns": BASE_NS + ms * 1_000_000, "gpu_util": 90, "gpm_graphics": 25.0} for ms in range(0, 3000, 100)]
    telemetry.write_text("\n".join(map(json.dumps, [{"meta": True, "name": "NVIDIA H200", "hz": 10}, *samples])))
    card = card_of(ingest_into_runs(folder, [(trace, trace.name), (telemetry, telemetry.name)]).runs[0], library)
    assert (set(card.utilization), card.utilization_of) == ({0.25}, "gr_active_pct")


def test_the_card_of_a_failed_training_reports_the_failure(run: Manifest, library: Library) -> None:
    failed = msgspec.structs.replace(run, notes=f"{RECORDED_BY}\n{ENDED_WITH} 1 after 3 steps.")
    assert (card_of(failed, library).problem or "").startswith(ENDED_WITH)
    assert failure_of(f"{RECORDED_BY}\n{ENDED_BEFORE} 1.") == f"{ENDED_BEFORE} 1."


def test_a_card_is_analysed_once(run: Manifest, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    first = card_of(run, library)
    monkeypatch.setattr(result_store, "analyse", lambda *_: pytest.fail("analysed again"))
    assert card_of(run, library) == first
    assert card_of(msgspec.structs.replace(run, name="another name"), library) == first


def test_a_card_is_updated_after_an_edit_and_replaces_the_old_file(run: Manifest, library: Library, folder: DataFolder) -> None:
    card_of(run, library)
    reported = msgspec.structs.replace(run, facts=UserFacts(step_time_ms=0.25))
    assert card_of(reported, library).readings["best_step_time_ms"].value == pytest.approx(0.25)
    assert len(list(folder.derived.glob("*.card.msgpack"))) == 1
    result_store.remove_cached(folder, run.id)
    assert list(folder.derived.glob("*.card.msgpack")) == []


def test_a_damaged_card_is_made_again(run: Manifest, library: Library, folder: DataFolder) -> None:
    """Any byte may be damaged, also one digit of a number, which would still be a number."""
    first = card_of(run, library)
    path = next(folder.derived.glob("*.card.msgpack"))
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert stored_card(run, folder) is None
    for damaged in (b"", b"{damaged", b"\xcd\xff" * 40, content[:-1]):
        path.write_bytes(damaged)
        assert card_of(run, library) == first


def test_a_missing_recording_is_reported_and_not_cached(library: Library, folder: DataFolder) -> None:
    manifest = new_manifest([RecordingRef(id="00112233445566aa", kind="trace", source_name="gone")], "gone")
    assert "not in this data folder" in str(card_of(manifest, library).problem)
    assert list(folder.derived.glob("*.card.msgpack")) == []


def test_a_large_run_is_analysed_by_a_child_once(run: Manifest, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from sawtooth.app.jobs.queue import Jobs
    from sawtooth.app.runs.card import is_large, stored_card
    from sawtooth.app.settings import Settings

    assert not is_large(run, folder)
    monkeypatch.setattr(run_card, "INLINE_BYTES", 1)
    assert is_large(run, folder)
    jobs = Jobs(Settings(folder))
    job = jobs.analyse(run.id)
    assert jobs.analyse(run.id) is job
    for thread in threading.enumerate():
        if thread.name == f"job-{job.id}":
            thread.join(120)
    assert (job.stage, job.outcome.sentence) == ("done", "")
    assert stored_card(run, folder) is not None
    jobs.close()


@pytest.mark.slow
def test_a_page_makes_a_limited_number_of_cards(
    run: Manifest, folder: DataFolder, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from sawtooth.app.page.runs import listing

    asked: list[str] = []
    jobs = SimpleNamespace(all=list, analyse=lambda run_id: asked.append(run_id) or SimpleNamespace(stage="waiting"))
    monkeypatch.setattr(listing, "jobs", lambda: jobs)
    monkeypatch.setattr(listing.frame, "data_folder", lambda: folder)
    monkeypatch.setattr(listing.frame, "library", lambda: library)
    assert listing.known(run, at_once=False).headline == "Is being analysed …"
    assert asked == [run.id]
    assert listing.known(run).gpu and asked == [run.id]  # A page with enough time makes it itself.
