"""Predicted step after a fix against the measured run after it: ``python -m tests.accuracy.predictions``.

For every committed recording with ``fixed_by``: the first finding with a prediction, as the recording alone gives it, and the stopwatch of
the recording after the change. Prints a Markdown table with the median and the worst error.
"""

from __future__ import annotations

import json
import statistics

from tests.rules.findings_of import BUNDLED, RECORDINGS, result_of, together

# The rules that speak of a change, where the first finding speaks of another one; several are predicted together, by one replay.
RULES_OF_CHANGE = {
    ("gpt_fp32", "gpt_tf32"): ("tf32-off",),
    ("adam_foreach", "gpt_small"): ("optimizer-foreach",),
    ("adam_single", "adam_fused"): ("optimizer-not-fused",),
    ("norm_by_hand", "gpt_small"): ("unfused-norm", "unfused-activation"),  # the run after it has both changed
}
# Changes after which a step does other work: its time is no measure of the fix.
OTHER_WORK = {"small_batch": "the step then does 16 times the work"}


def main() -> int:
    """Print the table; 0 always: tests hold the single predictions."""
    truths = {
        p.parent.name: json.loads(p.read_text()) for base in (RECORDINGS, BUNDLED) for p in sorted(base.glob("*/truth.json"))
    }
    print(
        "| recording | change | rule | before, ms | predicted, ms | measured after, ms | error |\n|---|---|---|---:|---:|---:|---:|"
    )
    errors = []
    for name, truth in truths.items():
        for fix in truth["fixed_by"]:
            after = truths.get(fix["recording"])
            if after is None:
                continue
            wanted = RULES_OF_CHANGE.get((name, fix["recording"]))
            first = next(iter(result_of(name).findings), None)
            rules = wanted or ((first.rule,) if first is not None and first.severity != "info" else ())
            predicted = together(name, rules) if rules else None
            before, measured = truth["step_s_pipelined"] * 1e3, after["step_s_pipelined"] * 1e3
            row = f"| {name} | {fix['change']} | {' + '.join(rules) or 'none'} | {before:.2f} |"
            if name in OTHER_WORK:
                print(f"{row} not comparable: {OTHER_WORK[name]} | {measured:.2f} | |")
                continue
            if predicted is None:
                print(f"{row} not predicted | {measured:.2f} | |")
                continue
            errors.append(predicted / measured - 1)
            print(f"{row} {predicted:.2f} | {measured:.2f} | {errors[-1]:+.0%} |")
    print(
        f"\n{len(errors)} predicted: median error {statistics.median(map(abs, errors)):.1%}, worst {max(map(abs, errors)):.1%}."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
