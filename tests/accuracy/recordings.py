"""Print reports of recordings next to independent clocks and counters, as a table.

    python -m tests.accuracy.recordings [FOLDER …]     (default: the bundled and the test recordings)

Each folder has trace.json.gz, nvml.jsonl and truth.json. The stopwatch ran without the profiler, the FLOP counter is
PyTorch's own, and the GPU measured tensor activity (GPM) while the loop ran. Below the Markdown table are planted
causes that do not come first, and critical findings that the recording after the fix refutes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.judged import judged, summary
from tests.support.paths import ROOT


def folders(paths: list[str]) -> list[Path]:
    """Return the recordings' folders: ``paths`` or their sub-folders, by default all of this repository."""
    roots = [Path(g) for g in paths] or [ROOT / "sample_traces", ROOT / "tests" / "recordings"]
    found = [f for root in roots for f in ([root] if (root / "truth.json").exists() else sorted(root.iterdir()))]
    return [f for f in found if (f / "truth.json").exists() and (f / "trace.json.gz").exists()]


def row_of(folder: Path, result: RunResult) -> dict[str, Any]:
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    value = {key: reading.value for key, reading in result.metrics.items()}
    watch, best = truth["step_s_pipelined"] * 1e3, value["best_step_time_ms"]
    flops = truth.get("flops_per_step")
    gpm = (truth.get("nvml_mean") or {}).get("gpm_tensor_any")
    return {
        "name": folder.name,
        "watch": watch,
        "profiled": value["step_time_ms"],
        "best": best,
        "error": best / watch - 1 if best else None,
        "flops": value["flops_per_step"] / flops if flops and value["flops_per_step"] else None,
        "tensor": value["tensor_core_time_share"],
        "gpm": gpm,
        "mfu": value["mfu"],
    }


@dataclass(frozen=True)
class JudgedSource:
    """One source's step time, judged by the stopwatch: relative error, interval, and high ÷ low.

    The error is None if the source gives only bounds.
    """

    error: float | None
    in_interval: bool
    width: float | None


def judged_sources(result: RunResult, watch_ms: float) -> dict[str, JudgedSource]:
    """Return the step time of each source of a run, and ``best`` for the chosen one."""
    lead = result.lead
    if lead is None or lead.best.ms is None or lead.best.reading.low is None:
        return {}
    reading = lead.best.reading
    chosen = StepTimeEvidence("best", lead.best.ms, reading.low or 0.0, reading.high)
    return {
        w.source: JudgedSource(w.ms / watch_ms - 1 if w.ms is not None else None, w.contains(watch_ms), w.width)
        for w in (*lead.best.evidence, chosen)
    }


def evidence_table(sources: list[dict[str, JudgedSource]]) -> Iterator[str]:
    """Yield the errors of each source, and the number and width of the intervals with the true value.

    Intervals without an upper end have their own column.
    """
    yield "| evidence | recordings | median error | 90 % within | worst | in interval | median high ÷ low | no upper bound |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for source in ("best", "user", "marks", "telemetry", "estimate"):
        of_source = [one[source] for one in sources if source in one]
        errors = sorted(abs(h.error) for h in of_source if h.error is not None)
        closed = [h for h in of_source if h.width is not None]
        if not errors:
            continue
        far = errors[min(int(0.9 * len(errors)), len(errors) - 1)]
        cells = [f"{len(of_source)}", f"{statistics.median(errors):.1%}", f"{far:.1%}", f"{errors[-1]:.0%}"]
        cells += [
            f"{sum(h.in_interval for h in closed)} of {len(closed)}",
            _text(statistics.median(h.width for h in closed) if closed else None, ".2f"),
        ]
        yield f"| {source} | " + " | ".join((*cells, f"{len(of_source) - len(closed)}")) + " |"


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def main(paths: list[str]) -> None:
    print(
        "| recording | stopwatch, ms | profiled, ms | Sawtooth, ms | error | FLOPs ÷ counter | tensor-core time | tensor pipe (GPM) | MFU |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    errors, sources = [], []
    truths = {f.name: json.loads((f / "truth.json").read_text(encoding="utf-8")) for f in folders(paths)}
    judgements = []
    with tempfile.TemporaryDirectory() as data:
        library = Library(DataFolder(Path(data)))
        for folder in folders(paths):
            files = [(folder / "trace.json.gz", folder.name), *[(f, f.name) for f in sorted(folder.glob("nvml.jsonl*"))]]
            run = ingest_into_runs(library.folder, files, name=folder.name).runs[0]
            result = analyse(run, library)
            r = row_of(folder, result)
            sources.append(judged_sources(result, r["watch"]))
            judgements.append(judged(folder.name, result.findings, truths))
            errors.append(abs(r["error"])) if r["error"] is not None else None
            cells = (_text(r["watch"], ".4g"), _text(r["profiled"], ".4g"), _text(r["best"], ".4g"), _text(r["error"], "+.0%"))
            more = (_text(r["flops"], ".4f"), _text(r["tensor"], ".0%"), _text(r["gpm"], ".1f") + " %", _text(r["mfu"], ".1%"))
            print(f"| {r['name']} | " + " | ".join((*cells, *more)) + " |", flush=True)
        library.close()
    print(
        f"\nStep time against the stopwatch: median error {statistics.median(errors):.1%}, worst {max(errors):.0%}, {len(errors)} recordings."
    )

    print("", *evidence_table(sources), "", *summary(judgements), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
