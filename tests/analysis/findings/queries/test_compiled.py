"""Tests of graph breaks of torch.compile: their exact count, and their cost by stopwatch."""

from __future__ import annotations

import json
import re
from functools import cache
from statistics import mean

import msgspec
import pytest

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.findings.queries.compiled import regions
from sawtooth.analysis.run import compile_log
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.paths import GRAPH_BREAKS

STOPWATCH_MS = json.loads((GRAPH_BREAKS / "truth.json").read_text(encoding="utf-8"))["step_ms"]
STEPS = 8  # profiled


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    opened = Library(DataFolder(tmp_path_factory.mktemp("compiled")).create())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def run(library):
    @cache
    def analysed(count, *kinds):
        files = [GRAPH_BREAKS / f"breaks_{count}.{kind}.gz" for kind in kinds]
        return analyse(ingest_into_runs(library.folder, [(f, f.name) for f in files], name=str(count)).runs[0], library)

    return analysed


@pytest.mark.sweep(2)
@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_breaks_are_counted_exactly_in_the_trace(library, run, count):
    recording = run(count, "json").lead.recording_id
    with library.open(recording) as opened:
        found = regions(opened)
    assert len(found) == STEPS * (count + 1)
    assert found["enclosing_name"].notna().sum() == STEPS * count


@pytest.mark.parametrize("count", [1, 5, 20])
def test_cost_of_graph_breaks_matches_the_stopwatch(run, count):
    """The predicted cost of graph breaks agrees with the stopwatch.

    The step without the breaks is another recording's. Its measured blocks lie within a tenth of their mean, so the
    gain lies within two tenths.
    """
    found = next(f for f in run(count, "json").findings if f.rule == "graph-breaks")
    lost = mean(STOPWATCH_MS[str(count)]) - mean(STOPWATCH_MS["0"])
    noise = max(STOPWATCH_MS[str(count)]) - mean(STOPWATCH_MS[str(count)]) + max(STOPWATCH_MS["0"]) - mean(STOPWATCH_MS["0"])
    gain = run(count, "json").lead.best.ms - found.predicted_step_ms
    assert gain == pytest.approx(lost, rel=0.15, abs=noise)


def test_host_time_in_graph_breaks_is_scaled_to_the_unprofiled_run(library, run):
    """The stopwatch gives 0.7 times the replayed step.

    The host's time in the title is scaled in the same way.
    """
    as_replayed = run(20, "json")
    reported = UserFacts(step_time_ms=0.7 * as_replayed.lead.best.ms)
    timed = analyse(msgspec.structs.replace(as_replayed.manifest, facts=reported), library)
    of_both = [next(f.title for f in item.findings if f.rule == "graph-breaks") for item in (as_replayed, timed)]
    then, now = (float(re.search(r"spends ([\d.]+) ms", title)[1]) for title in of_both)
    assert now == pytest.approx(0.7 * then, rel=0.01)


def test_the_log_names_place_and_reason_of_each_break(run):
    result = run(20, "json", "log")
    found = next(f for f in result.findings if f.rule == "graph-breaks")
    assert len(result.compile_log.breaks) == 20
    assert result.compile_log.compiled == 21
    rows = found.evidence[:20]  # The other rows are the time between pieces of the backward pass.
    lines = [row["place"] for row in rows]
    assert lines[0] == "net20.py:5"  # The break is after the first block. The function begins in line 3.
    assert len(set(lines)) == 20 and all(line.startswith("net20.py:") for line in lines)
    assert {row["reason"] for row in rows} == {"Call to `torch._dynamo.graph_break()`"}
    assert all(row["times_per_step"] == 1 for row in rows)


ABANDONED = (  # The text of PyTorch 2.11 for a break in a loop.
    'V1123 00:15:10.018000 1856 torch/_dynamo/symbolic_convert.py:5101] {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, '
    '"frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "95"}\n'
    "\tGraph break in user code at /home/me/net.py:101\n"
    "\tGraph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph break encountered:\n\t\n"
    "\tCall to `print`\n\t  Explanation: no\n\t  Hint: Remove the call.\n\t\n"
    "\t*** While handling this graph break, another graph break occurred: ***\n\t\n\tgraph break in loop\n\t  Explanation: no\n"
)


def test_a_graph_break_in_a_loop_leaves_its_function_uncompiled(tmp_path, library):
    """A graph break in a loop leaves its function uncompiled, which only the log shows.

    The trace then has no region inside another. (Recorded on an H200: 21 layers in a loop, broken 1, 5 and 20 times.)
    """
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_text(ABANDONED)
    trace = GRAPH_BREAKS / "breaks_0.json.gz"
    (run,) = ingest_into_runs(library.folder, [(trace, trace.name), (log, log.name)], name="given up").runs
    (found,) = [f for f in analyse(run, library).findings if f.rule == "graph-breaks"]
    assert found.title.startswith(
        "torch.compile gave up on a function, which runs uncompiled: the break at net.py:101 is in a loop"
    )
    assert found.fix.endswith("At net.py:101: Call to `print`.") and found.predicted_step_ms is None
    assert [(row["place"], row["hint"]) for row in found.evidence] == [("net.py:101", "Remove the call.")]


def test_separately_compiled_functions_are_not_graph_breaks(tmp_path, library):
    trace = ChromeTrace()
    for i in range(3):
        trace.host("cpu_op", f"Torch-Compiled Region: {i}/0", 10 + 20 * i, 20 + 20 * i)
    trace.host("cpu_op", "Torch-Compiled Region: 3/0", 90, 130)
    trace.host("cpu_op", "aten::mm", 95, 125)
    trace.host("cpu_op", "Torch-Compiled Region: 4/0", 100, 120)
    ref = ingest_file(trace.write(tmp_path / "trace.json"), library.folder)
    ensure_derived(library.folder, ref.id)
    with library.open(ref.id) as opened:
        assert regions(opened)["enclosing_name"].tolist() == [None, None, None, None, "Torch-Compiled Region: 3/0"]


def test_the_most_frequent_places_of_each_kind_are_kept(tmp_path, library):
    """The most frequent places of breaks and of recompilations are kept, each kind by itself.

    With one limit of 200 for both, all recompilations after 200 breaks would be lost, and perhaps the most frequent break.
    """
    entry = 'V1123 00:15:10.018000 1856 torch/_dynamo/x.py:1] {"artifact": {"name": "%s"}, "frame_id": %d, "frame_compile_id": 0, "has_payload": "9"}\n\t%s\n'
    broken = [("dynamo_graph_break_reason", i, f"Graph break in user code at /a/net.py:{i}\n\tno") for i in range(250)]
    broken += 3 * broken[-1:]
    again = [("recompile_reasons", 0, json.dumps([f"guard {i}"])) for i in range(120) for _ in range(1 + (i == 119))]
    log = tmp_path / "dedicated_log_torch_trace_y.log"
    log.write_text("".join(entry % item for item in broken + again))
    (run,) = ingest_into_runs(library.folder, [(log, log.name)], name="many").runs
    found = compile_log.load(run, library, None)
    assert (len(found.breaks), len(found.recompiled)) == (compile_log.MAX_PLACES, compile_log.MAX_PLACES)
    assert max((entry.times, entry.place) for entry in found.breaks) == (4, "net.py:249")
    assert max((entry.times, entry.reason) for entry in found.recompiled) == (2, "guard 119")


def test_times_of_breaks_and_between_backward_pieces_sum_to_the_total(run):
    result = run(20, "json", "log")
    found = next(f for f in result.findings if f.rule == "graph-breaks")
    item, (backward,) = found.evidence[:20], found.evidence[20:]
    assert all(row["ms_per_step"] > 0 for row in item) and "does not show" in backward["name"]
    complete = sum(row["ms_per_step"] for row in found.evidence)
    assert f"spends {complete:.3g} ms of each step there ({100 * complete / result.lead.best.ms:.2g} %)" in found.title
    assert sum(row["share_of_step"] for row in found.evidence) == pytest.approx(complete / result.lead.best.ms)


@pytest.mark.parametrize("lookups", [1, 4])
def test_calls_without_cached_code_run_uncompiled(tmp_path, lookups):
    trace = ChromeTrace(made_for=f"{lookups} lookups")
    for at in trace.each_step(4, 1000):
        for place in range(lookups):
            trace.op("TorchDynamo Cache Lookup", at + 10 + 100 * place, at + 20 + 100 * place)
        trace.op("Torch-Compiled Region: 0/0", at + 30, at + 90)
        trace.launch((at + 40, at + 50), (at + 60, at + 900), "triton_poi_fused_add_0")
    folder = DataFolder(tmp_path / "data").create()
    with Library(folder) as opened:
        manifest = ingest_into_runs(folder, [(trace.write(tmp_path / "trace.json"), "trace.json")], name="vain").runs[0]
        reported = [f for f in analyse(manifest, opened).findings if f.rule == "graph-breaks"]
    assert [f.title for f in reported] == (
        ["torch.compile finds no compiled code for 3 calls per step, so the code runs uncompiled"] if lookups > 1 else []
    )
