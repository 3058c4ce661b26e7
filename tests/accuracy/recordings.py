"""Print what Sawtooth says of recordings beside what independent clocks and counters saw, as a Markdown table.

    python -m tests.accuracy.recordings [FOLDER …]     (default: the bundled and the test recordings)

Each folder holds trace.json.gz, nvml.jsonl and truth.json. The stopwatch ran without the profiler, the FLOP counter is PyTorch's own, and
tensor activity was measured by the GPU (GPM) while the loop ran.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from analysis.recordings import Library
from analysis.results import analyse
from analysis.run_result import RunResult
from app.intake import bring_in
from ingest.schema import DataFolder

ROOT = Path(__file__).parents[2]


def folders(given: list[str]) -> list[Path]:
    """Return the recordings' folders: those given (or their sub-folders), else all of this repository."""
    roots = [Path(g) for g in given] or [ROOT / "sample_traces", ROOT / "tests" / "recordings"]
    found = [f for root in roots for f in ([root] if (root / "truth.json").exists() else sorted(root.iterdir()))]
    return [f for f in found if (f / "truth.json").exists() and (f / "trace.json.gz").exists()]


def row_of(folder: Path, result: RunResult) -> dict[str, Any]:
    """Return the numbers of one recording."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    value = {key: reading.value for key, reading in result.metrics.items()}
    watch, best = truth["step_s_pipelined"] * 1e3, value["step_time_best_ms"]
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


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def main(given: list[str]) -> None:
    """Print the table and the errors' median and worst."""
    print(
        "| recording | stopwatch, ms | profiled, ms | Sawtooth, ms | error | FLOPs ÷ counter | tensor-core time | tensor pipe (GPM) | MFU |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    errors = []
    with tempfile.TemporaryDirectory() as data:
        library = Library(DataFolder(Path(data)))
        for folder in folders(given):
            files = [(folder / "trace.json.gz", folder.name), *[(f, f.name) for f in sorted(folder.glob("nvml.jsonl*"))]]
            run = bring_in(library.folder, files, name=folder.name).runs[0]
            r = row_of(folder, analyse(run, library))
            errors.append(abs(r["error"])) if r["error"] is not None else None
            cells = (_text(r["watch"], ".4g"), _text(r["profiled"], ".4g"), _text(r["best"], ".4g"), _text(r["error"], "+.0%"))
            more = (_text(r["flops"], ".4f"), _text(r["tensor"], ".0%"), _text(r["gpm"], ".1f") + " %", _text(r["mfu"], ".1%"))
            print(f"| {r['name']} | " + " | ".join((*cells, *more)) + " |", flush=True)
        library.close()
    print(
        f"\nStep time against the stopwatch: median error {statistics.median(errors):.1%}, worst {max(errors):.0%}, {len(errors)} recordings."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
