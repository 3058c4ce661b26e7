"""Print predicted changes of a job of several ranks next to the stopwatch after the change.

    python -m tests.accuracy.job_pairs FOLDER … [--data FOLDER]

The output is a Markdown table. ``tests.accuracy.jobs`` describes the folders. A pair is NAME_before and NAME_after
(``sample_traces/two_gpus.py``). Its truth names the rule for the change. If that rule finds nothing, the prediction is that
the change has no gain.
"""

from __future__ import annotations

import json
from pathlib import Path

from sawtooth.analysis.store.library import Library
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.jobs import analysed, jobs, run


def main(paths: list[str], data: Path) -> None:
    folders = {folder.name: folder for folder in jobs(paths)}
    library = Library(DataFolder(data))
    print(
        "| pair | rule | before, ms | reported, ms | predicted, ms | interval, ms | after, ms | gain predicted | measured | position |"
    )
    print("|---|---|--:|--:|--:|---|--:|--:|--:|---|")
    for name, folder in folders.items():
        changed = json.loads((folder / "truth_0.json").read_text(encoding="utf-8")).get("after")
        after = folders.get(changed or name.replace("_before", "_after"))
        if after is None or after == folder or not name.endswith("_before"):
            continue
        truths = [json.loads((item / "truth_0.json").read_text(encoding="utf-8")) for item in (folder, after)]
        before_ms, after_ms = (truth["step_s_pipelined"] * 1e3 for truth in truths)
        result = analysed(library, folder, telemetry=True)
        reported_ms = result.lead.best.ms if result.lead is not None else None
        rules = [finding.rule for finding in result.findings]
        finding = next((f for f in result.findings if f.rule == truths[0]["rule"]), None)
        predicted = finding.predicted_step_ms if finding is not None else reported_ms
        low, high = (finding.predicted_low_ms, finding.predicted_high_ms) if finding is not None else (None, None)
        cells = [
            name.removesuffix("_before"),
            truths[0]["rule"],
            f"{before_ms:.2f}",
            f"{reported_ms or 0:.2f}",
            f"{predicted:.2f}" if predicted is not None else "–",
            f"{low:.1f} to {high:.1f}" if low is not None and high is not None else "",
            f"{after_ms:.2f}",
            f"{predicted / reported_ms - 1:+.1%}" if predicted is not None and reported_ms else "–",
            f"{after_ms / before_ms - 1:+.1%}",
            f"{rules.index(finding.rule) + 1} of {len(rules)}" if finding is not None else f"none; first {rules[:1]}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    library.close()


if __name__ == "__main__":
    run(main, __doc__)
