"""Compare the predicted step after a fix with the run measured after it.

    python -m tests.accuracy.predictions [FOLDER …]

For every recording with ``fixed_by``, the script predicts the step time after the change, and compares it with the stopwatch
of the recording after the change. The prediction uses the findings of the rules in ``rules`` beside ``fixed_by``, else of
RULES_OF_CHANGE, else the first finding. One table is for recordings that were used to choose thresholds and factors, another
for recordings made later. Each Markdown table has errors, how many intervals contain the measured step, and how wide they
are.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.findings_of import predicted_together_ms, result_of
from tests.support.paths import RECORDED_AFTER, RECORDINGS, SAMPLES

# The rules for a change, if the first finding is about another change. One replay predicts several rules together.
RULES_OF_CHANGE = {
    ("eval_with_grad", "eval_without_grad"): ("evaluation-records-graph",),  # The first finding is about compiling.
    ("recompute", "gpt_small"): ("recomputation",),
    ("gpt_fp32", "gpt_tf32"): ("tf32-off",),
    ("adam_foreach", "gpt_small"): ("optimizer-foreach",),
    ("adam_single", "adam_fused"): ("optimizer-not-fused",),
    ("norm_by_hand", "gpt_small"): ("unfused-norm", "unfused-activation"),  # Both were changed in the later run.
    ("vit_fp32", "vit_tf32"): ("tf32-off",),
    ("vit_tf32", "vit_bf16"): ("fp32-products",),
    ("unet_pageable", "unet_pinned"): ("pageable-copies",),
    ("llama_adam_single", "llama"): ("optimizer-not-fused",),
    ("llama_norm_by_hand", "llama"): ("unfused-norm",),
    ("mixer_eager", "mixer_compiled"): ("elementwise-chains",),
    ("encoder_eager", "encoder_graph"): ("launch-bound",),
    ("bert_30522", "bert_30528"): ("misaligned-dimensions",),
    ("vgg_first", "vgg_last"): ("layout-conversions",),
    ("dlrm_reads", "dlrm"): ("host-waits-for-gpu",),
    ("mobile_inline", "mobile_workers"): ("data-loader-starves-gpu",),
    ("t5_math", "t5_sdpa"): ("unfused-attention",),
    ("convnext_clip_by_hand", "convnext_clip"): ("host-waits-for-gpu",),
    ("scan_loop", "scan_graph"): ("launch-bound",),
    ("detr_on_host", "detr_on_gpu"): ("host-waits-for-gpu",),
    ("resnext_first", "resnext_last"): ("layout-conversions",),
    ("swin_math", "swin_sdpa"): ("unfused-attention",),
    ("sage_fp32", "sage_tf32"): ("tf32-off",),
    ("keywords_one", "keywords_twelve"): ("data-loader-starves-gpu",),
    ("generate_growing", "generate_fixed"): ("launch-bound",),
    ("zeroed_gradients", "gpt_small"): ("zeroed-gradients",),  # The first finding is about compiling.
    ("captions_growing", "captions_graph"): ("launch-bound",),
    ("points_single", "points_fused"): ("optimizer-not-fused",),
    ("tables_eager", "tables_compiled"): ("elementwise-chains",),
    ("boxes_reads", "boxes_quiet"): ("host-waits-for-gpu",),
}
# After these changes, a step does other work, so its time does not measure the fix.
OTHER_WORK = {"small_batch": "the step then does 16 times the work"}
HEAD = "| recording | change | rule | before, ms | predicted, ms | interval | measured after, ms | error | in interval |\n|---|---|---|--:|--:|---|--:|--:|---|"


@dataclass(frozen=True)
class Judged:
    """One pair: relative error, interval and limit of a predicted step.

    ``in_interval`` says whether the interval contains the measured step (None without one), ``width`` is high ÷ low, and
    ``gpu_bound`` says whether the GPU limits the step after the change.
    """

    error: float
    in_interval: bool | None
    width: float | None
    gpu_bound: bool


def main() -> int:
    """Print both tables and return 0; the tests check the single predictions."""
    folders = [Path(name) for name in sys.argv[1:]]
    for title, roots in (
        [("of the command line", folders)]
        if folders
        else [("used in fitting", [RECORDINGS, SAMPLES]), ("recorded after", [RECORDED_AFTER])]
    ):
        files = {p.parent.name: p for root in roots for p in sorted(root.glob("*/truth.json"))}
        truths = {name: json.loads(file.read_text()) for name, file in files.items()}
        print(f"\n## Pairs {title}\n\n{HEAD}")
        pairs = [(name, fix) for name, truth in truths.items() for fix in truth["fixed_by"]]
        judged = [pair for name, fix in pairs if (pair := judge(name, fix, truths, files[name].parent.parent))]
        print(f"\n{summary(judged)}")
    return 0


def rules_of(before: str, fix: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the slugs of the rules for the change from ``before`` to the recording after it.

    Empty if none are named.
    """
    return tuple(fix.get("rules", ())) or RULES_OF_CHANGE.get((before, fix["recording"]), ())


def judge(name: str, fix: dict[str, Any], truths: dict[str, Any], root: Path) -> Judged | None:
    """Print the row of one pair of recordings in ``root``.

    Return None if nothing was predicted or the steps are not comparable.
    """
    after = truths.get(fix["recording"])
    if after is None:
        return None
    result = result_of(name, root)
    findings = result.findings
    first = next(iter(findings), None)
    rules = rules_of(name, fix) or ((first.rule,) if first is not None and first.severity != "info" else ())
    predicted = predicted_together_ms(result, rules) if rules else None
    before, measured = truths[name]["step_s_pipelined"] * 1e3, after["step_s_pipelined"] * 1e3
    row = f"| {name} | {fix['change']} | {' + '.join(rules) or 'none'} | {before:.2f} |"
    if name in OTHER_WORK or predicted is None:
        print(
            f"{row} {'not comparable: ' + OTHER_WORK[name] if name in OTHER_WORK else 'not predicted'} | | {measured:.2f} | | |"
        )
        return None
    error = predicted / measured - 1
    only = next((f for f in findings if f.rule == rules[0]), None) if len(rules) == 1 else None
    low, high = (only.predicted_low_ms, only.predicted_high_ms) if only is not None else (None, None)
    in_interval = low <= measured <= high if low is not None and high is not None else None
    between = f"{low:.2f} to {high:.2f}" if low is not None and high is not None else ""
    print(
        f"{row} {predicted:.2f} | {between} | {measured:.2f} | {error:+.0%} | {'' if in_interval is None else 'yes' if in_interval else 'no'} |"
    )
    busy = after["nvml_mean"].get("gpu_util", 0) >= 97  # NVML's utilization of a GPU-bound run.
    return Judged(error, in_interval, high / low if low and high else None, busy)


def summary(judged: list[Judged]) -> str:
    """Return errors, coverage and width in one sentence each, and the errors of GPU-bound steps."""
    sentences = []
    for title, part in (("all", judged), ("GPU-bound after the fix", [j for j in judged if j.gpu_bound])):
        if not part:
            continue
        errors = sorted(abs(j.error) for j in part)
        within = errors[min(int(0.8 * len(errors)), len(errors) - 1)]
        sentences.append(
            f"{title}: {len(part)} predicted, median error {statistics.median(errors):.1%}, 80 % within {within:.1%}, worst {errors[-1]:.1%}."
        )
    in_interval = [j for j in judged if j.in_interval is not None]
    widths = [j.width for j in judged if j.width is not None]
    if in_interval and widths:
        sentences.append(
            f"Intervals: {sum(bool(j.in_interval) for j in in_interval)} of {len(in_interval)} contain the measured step; median high ÷ low {statistics.median(widths):.2f}."
        )
    return "\n".join(sentences)


if __name__ == "__main__":
    raise SystemExit(main())
