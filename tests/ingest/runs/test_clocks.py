"""Tests of the zones, starts, intervals and shifts that a user enters for a telemetry file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.clock import ClockOrigin, SampleClock, place
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.runs.bundle import export_runs, import_bundle
from sawtooth.ingest.runs.clocks import ClockCorrection, apply, clock_advice, parse_zone, start_ns
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop

REF = RecordingRef("a" * 16, "telemetry", "t.csv")
HOUR = 3600 * 10**9
JULY = 1_783_000_000 * 10**9  # 2026-07-02 13:46:40, as the file's local time
BERLIN_SUMMER = 2 * HOUR


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data").create()


def csv_log(path: Path, local: list[str]) -> Path:
    path.write_text("timestamp, utilization.gpu [%]\n" + "".join(f"{t}, {10 * i % 100} %\n" for i, t in enumerate(local)))
    return path


@pytest.mark.parametrize(
    ("zone", "offset"), [("Europe/Berlin", -BERLIN_SUMMER), ("+05:30", -5.5 * HOUR), ("-03", 3 * HOUR), ("UTC", 0)]
)
def test_a_zone_turns_local_times_into_absolute_ones(zone: str, offset: float) -> None:
    assert apply(REF, "local", JULY, ClockCorrection(time_zone=zone)).offset_ns == offset


def test_a_shift_is_added_with_or_without_a_zone() -> None:
    assert apply(REF, "local", JULY, ClockCorrection("Europe/Berlin", shift_s=0.5)).offset_ns == -BERLIN_SUMMER + 500_000_000
    assert apply(REF, "unix", JULY, ClockCorrection(shift_s=-1.25)).offset_ns == -1_250_000_000
    assert apply(REF, "unix", JULY, ClockCorrection(time_zone="Europe/Berlin")) == REF  # Absolute times need no zone.


def test_a_start_places_a_file_without_times() -> None:
    placed = apply(REF, "unknown", 0, ClockCorrection(start="2026-11-21T09:30:00+01:00", interval_s=0.1))
    assert (placed.offset_ns, placed.interval_ns) == (1_795_249_800 * 10**9, 100_000_000)  # 08:30 UTC: date -d … +%s
    assert apply(REF, "unknown", 0, ClockCorrection("Europe/Berlin", "2026-11-21 09:30")).offset_ns == placed.offset_ns
    assert start_ns("1795249800.25", None) == 1_795_249_800_250_000_000


@pytest.mark.parametrize(
    "correction",
    [ClockCorrection(time_zone="Mars/Olympus"), ClockCorrection(time_zone="+99:00"), ClockCorrection(start="yesterday"), ClockCorrection(start="2026-11-21 09:30"), ClockCorrection(interval_s=0.0), ClockCorrection(shift_s=1e12)],
)  # fmt: skip
def test_invalid_corrections_are_refused_with_a_sentence(correction: ClockCorrection) -> None:
    with pytest.raises(UsageError) as refused:
        apply(REF, "local" if correction.time_zone else "unknown", JULY, correction)
    assert str(refused.value).endswith(".")


def test_zones_are_names_or_offsets() -> None:
    assert str(parse_zone("Asia/Kolkata")) == "Asia/Kolkata"
    with pytest.raises(UsageError, match="not a time zone"):
        parse_zone("../../etc/passwd")


def test_a_missing_zone_is_reported() -> None:
    assert "--time-zone" in str(clock_advice(REF, "local"))
    assert "--start" in str(clock_advice(REF, "unknown"))
    assert clock_advice(REF, "unix") is None
    assert clock_advice(apply(REF, "local", JULY, ClockCorrection("UTC")), "local") is None


def test_the_command_line_takes_a_zone_and_says_when_one_is_missing(tmp_path: Path, folder: DataFolder) -> None:
    log = csv_log(tmp_path / "smi.csv", ["2026/07/02 13:46:40.000", "2026/07/02 13:46:40.100", "2026/07/02 13:46:40.200"])
    first = CliRunner().invoke(cli, ["ingest", str(log), "--data", str(folder.root)])
    assert first.exit_code == 0
    assert "--time-zone" in first.stderr
    run = first.stdout.strip().splitlines()[-1]
    assert folder.read_manifest(run).telemetry[0].offset_ns is None
    again = CliRunner().invoke(cli, ["ingest", str(log), "--data", str(folder.root), "--time-zone", "Europe/Berlin"])
    assert again.stdout.strip().splitlines()[-1] == run
    assert "--time-zone" not in again.stderr
    assert folder.read_manifest(run).telemetry[0].offset_ns == -BERLIN_SUMMER
    wrong = CliRunner().invoke(cli, ["ingest", str(log), "--data", str(folder.root), "--time-zone", "Nowhere"])
    assert (wrong.exit_code, wrong.exception is not None) != (0, False)


@pytest.mark.parametrize(
    "stated",
    [
        ("--time-zone", "Nowhere"),
        ("--start", "yesterday"),
        ("--start", "2026-11-21 09:30"),
        ("--interval", "0"),
        ("--shift", "1e12"),
    ],
)
def test_a_wrong_clock_correction_changes_nothing(tmp_path: Path, folder: DataFolder, stated: tuple[str, str]) -> None:
    trace = matmul_loop().write(tmp_path / "trace.json")
    log = csv_log(tmp_path / "smi.csv", ["2026/07/02 13:46:40.000", "2026/07/02 13:46:40.100", "2026/07/02 13:46:40.200"])
    (before,) = ingest_into_runs(folder, [(trace, "trace.json")], name="before").runs
    for files in ([trace], [trace, log]):
        command = ["ingest", *map(str, files), "--data", str(folder.root), "--name", "after", *stated]
        assert isinstance(CliRunner().invoke(cli, command).exception, UsageError)
        assert folder.manifests() == [before]


def test_local_telemetry_is_aligned_only_with_its_zone(tmp_path: Path, folder: DataFolder) -> None:
    trace = matmul_loop().write(tmp_path / "trace.json")
    begins = BASE_NS // 10**9 - 3 + 7200  # The wall clock in Berlin shows this time in summer.
    lines = [{"t": begins + 0.1 * k} for k in range(60)]
    import datetime as dt

    local = [dt.datetime.fromtimestamp(row["t"], dt.UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3] for row in lines]
    log = csv_log(tmp_path / "smi.csv", local)
    bare = ingest_into_runs(folder, [(trace, "trace.json"), (log, "smi.csv")])
    assert "smi.csv" in bare.notices[0]
    library = Library(folder)
    result = analyse(bare.runs[0], library)
    reported = read(library, result, bare.runs[0])
    span = TimelineSpan(BASE_NS, BASE_NS + 10**9)
    assert not reported.clock.known
    assert not series.overlap(reported, span, "unix")
    placed = ingest_into_runs(folder, [(trace, "trace.json"), (log, "smi.csv")], correction=ClockCorrection(time_zone="+02:00"))
    assert placed.notices == []
    assert placed.runs[0].id == bare.runs[0].id
    result = analyse(placed.runs[0], library)
    reported = read(library, result, placed.runs[0])
    assert series.overlap(reported, span, "unix")
    assert reported.span.start_ns == (BASE_NS // 10**9 - 3) * 10**9
    library.close()


def read(library: Library, result, run: Manifest) -> series.TelemetrySeries:
    ref = run.telemetry[0]
    with library.open(ref.id, derived=False) as recording:
        return series.telemetry(recording, 0, result.telemetry.clocks[ref.id])


def test_an_interval_stretches_samples_and_gaps(tmp_path: Path, folder: DataFolder) -> None:
    dmon = tmp_path / "dmon.txt"
    dmon.write_text("# gpu pwr sm\n# Idx W %\n" + "".join(f"    0 {100 + k} {k}\n" for k in range(10)))
    run = ingest_into_runs(folder, [(dmon, "dmon.txt")], correction=ClockCorrection(start="1795249800", interval_s=0.1)).runs[0]
    library = Library(folder)
    reported = read(library, analyse(run, library), run)
    assert reported.samples["time_ns"].tolist() == [1_795_249_800 * 10**9 + k * 10**8 for k in range(10)]
    # The user placed the file relative to the trace, so the clock of the trace does not matter.
    assert reported.clock.shares("unknown")
    library.close()


def test_a_bundle_contains_clock_corrections(tmp_path: Path, folder: DataFolder) -> None:
    log = csv_log(tmp_path / "smi.csv", ["2026/07/02 13:46:40.000", "2026/07/02 13:46:40.100"])
    run = ingest_into_runs(folder, [(log, "smi.csv")], correction=ClockCorrection("Europe/Berlin")).runs[0]
    export_runs(folder, [run.id], tmp_path / "r.sawtooth")
    other = DataFolder(tmp_path / "other").create()
    assert import_bundle(tmp_path / "r.sawtooth", other)[0].telemetry[0].offset_ns == -BERLIN_SUMMER


# In this order, the tests below use a user's correction, equal hosts, offsets measured during a push, and clocks assumed to be equal.
TRACE_A = RecordingRow("a" * 16, "trace", clock="unix", host="a")


def placed(origin: ClockOrigin, ref: RecordingRef = REF, trace: RecordingRow = TRACE_A, *others: ClockOrigin) -> SampleClock:
    origins = {ref.id: origin} | {f"{k:016x}": o for k, o in enumerate(others)}
    return place([ref], origins, [trace])[ref.id]


def test_a_correction_by_the_user_has_priority() -> None:
    ref = RecordingRef(REF.id, "telemetry", "t", offset_ns=7)
    assert placed(ClockOrigin("unix", "b", "a", 2_000), ref).offset_ns == 7


def test_one_host_has_one_clock_despite_measured_offsets() -> None:
    found = placed(ClockOrigin("unix", "a", "dash", 2_000))
    assert (found.name, found.offset_ns) == ("unix", 0)


def test_telemetry_is_compared_with_a_trace_of_its_own_host() -> None:
    traces = [TRACE_A, replace(TRACE_A, host="b")]
    assert "same host" in place([REF], {REF.id: ClockOrigin("unix", "b", "a", 9)}, traces)[REF.id].reason
    assert "were not compared" in place([REF], {REF.id: ClockOrigin("unix", "c", "a", 9)}, traces)[REF.id].reason


def test_the_offset_measured_by_the_traces_host_is_used() -> None:
    found = placed(ClockOrigin("unix", "b", "a", 2_300_000_000))
    assert (found.name, found.offset_ns) == ("placed", 2_300_000_000)


def test_two_hosts_that_push_to_one_dashboard_are_compared_through_it() -> None:
    # The clock of b is 5 s behind the dashboard, and that of a 2 s, so b is 3 s behind a.
    found = placed(ClockOrigin("unix", "b", "dash", 5 * 10**9), REF, TRACE_A, ClockOrigin("unix", "a", "dash", 2 * 10**9))
    assert found.offset_ns == 3 * 10**9
    other_dashboard = placed(
        ClockOrigin("unix", "b", "dash", 5 * 10**9), REF, TRACE_A, ClockOrigin("unix", "a", "elsewhere", 2 * 10**9)
    )
    assert (other_dashboard.name, other_dashboard.offset_ns) == ("unix", 0)


@pytest.mark.parametrize(("clock", "word"), [("local", "zone"), ("unknown", "no times")])
def test_times_without_origin_are_not_comparable(clock: str, word: str) -> None:
    found = placed(ClockOrigin(clock, "a"))
    assert not found.known
    assert not found.shares("unix")
    assert word in found.reason


def test_a_damaged_offset_in_a_manifest_is_not_used() -> None:
    ref = RecordingRef(REF.id, "telemetry", "t", offset_ns=1 << 70, interval_ns=-5)
    assert placed(ClockOrigin("unix", "a"), ref) == placed(ClockOrigin("unix", "a"))


def test_the_measured_offset_of_a_pushed_session_is_in_its_file(tmp_path: Path) -> None:
    from sawtooth.ingest.sampler.segments import SegmentWriter
    from sawtooth.ingest.telemetry.session import write_session_file

    meta = {
        "v": 1,
        "session": "s",
        "host": "b",
        "interval_ns": 10**8,
        "columns": ["util_pct"],
        "devices": [{"device": 0, "name": "H200", "uuid": "u"}],
    }
    writer = SegmentWriter(tmp_path / "s", {**meta, "started_m": 0, "started_w": JULY})
    for k in range(5):
        writer.write({"k": "tick", "m": k * 10**8, "w": JULY + k * 10**8, "g": [[50]]})
    writer.close()
    write_session_file(tmp_path / "s", tmp_path / "s.jsonl", 1_500_000_000)
    folder = DataFolder(tmp_path / "data").create()
    run = ingest_into_runs(folder, [(tmp_path / "s.jsonl", "s.jsonl")]).runs[0]
    library = Library(folder)
    with library.open(run.telemetry[0].id, derived=False) as recording:
        (text,) = recording.rows("SELECT metadata FROM recording")[0]
        assert recording.rows("SELECT count(*) FROM samples") == [(5,)]
    assert json.loads(text)["pushed"]["clock_offset_ns"] == 1_500_000_000
    library.close()
