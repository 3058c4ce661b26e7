"""Find the tokens that the steps of a text generation produce one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext

MIN_TOKENS = 4  # Tokens per step. With fewer tokens, the time of one token is not known.
MIN_EVEN_SHARE = 0.9  # Of the tokens with the median number of kernels. The last token may differ, because it may end the text.
MIN_KERNELS = 5  # Per token. A loop with fewer kernels is not a model's forward pass.
# Each token looks up an embedding and chooses the next token from the logits. The equal layers of an encoder (ViT, BERT) and the
# denoising passes of a diffusion model have only one of the two, or none.
EMBEDDING_LOOKUPS = r"^aten::(?:embedding|index_select|gather)$"
TOKEN_CHOICES = r"^aten::(?:argmax|multinomial|topk|sort|max)$"


@dataclass(frozen=True)
class Generation:
    """The tokens of steps that each read a prompt and then produce one token after the other.

    ``first_ops`` has the gpu_op_id that begins each token, in all counted steps. ``per_step`` is the average number of tokens per
    step. ``prompt_share`` is the share of the profiled steps' time before the first token.
    """

    first_ops: tuple[int, ...]
    per_step: float
    prompt_share: float


def generated_tokens(context: RuleContext) -> Generation | None:
    """Return the tokens of a run whose counted steps generate text; None for other runs.

    A token begins where an operator with the same inputs repeats, with equally many kernels between repetitions. Between two
    repetitions, the model must choose a token from the logits and look up its embedding. The steps must have no backward pass.
    """
    work = context.work[context.work["signature_id"].notna() & context.work["operator"].notna()]
    if work.empty or len(context.launches.launched_in_backward()):
        return None
    ops_by_step: list[np.ndarray] = []
    prompts_ns = 0
    for step, part in work.groupby("step", sort=True):
        starts = _token_starts(part)
        if starts is None:
            return None
        ops_by_step.append(part["gpu_op_id"].to_numpy(np.int64)[starts])
        spans = context.rank.steps[context.rank.steps["step"] == step]
        prompts_ns += int(part["start_ns"].to_numpy(np.int64)[starts[0]]) - int(spans["start_ns"].iloc[0])
    counted = context.rank.counted
    steps_with_work = counted[counted["step"].isin(work["step"].unique())]
    steps_ns = int((steps_with_work["end_ns"] - steps_with_work["start_ns"]).sum())
    first_ops = np.concatenate(ops_by_step)
    prompt_share = max(prompts_ns, 0) / steps_ns if steps_ns > 0 else 0.0
    return Generation(tuple(first_ops.tolist()), len(first_ops) / len(ops_by_step), prompt_share)


def _token_starts(part: pd.DataFrame) -> np.ndarray | None:
    """Return the positions in one step's work at which tokens begin.

    Tokens start at the evenly repeated kernel with the longest period. If several kernels have this period, the one that
    begins first is used. None if no repetition has a choice and a lookup of a token.
    """
    kinds = part.groupby(["operator", "signature_id", "kernel"], sort=False).ngroup().to_numpy()
    even_repetitions: list[np.ndarray] = []
    for kind in np.unique(kinds):
        positions = np.flatnonzero(kinds == kind)
        if len(positions) < MIN_TOKENS:
            continue
        periods = np.append(np.diff(positions), len(kinds) - positions[-1])
        median_period = int(np.median(periods))
        if median_period >= MIN_KERNELS and (np.abs(periods - median_period) <= 1).mean() >= MIN_EVEN_SHARE:
            even_repetitions.append(positions)
    lookups, choices = (np.flatnonzero(part["operator"].str.contains(name)) for name in (EMBEDDING_LOOKUPS, TOKEN_CHOICES))
    tokens = [starts for starts in even_repetitions if _lie_between(starts, lookups) and _lie_between(starts, choices)]
    return min(tokens, key=lambda starts: (len(starts), int(starts[0]))) if tokens else None


def _lie_between(starts: np.ndarray, positions: np.ndarray) -> bool:
    """Return whether nearly every interval between two ``starts`` contains one of ``positions``."""
    intervals = np.searchsorted(starts, positions, side="right")
    filled_intervals = np.unique(intervals[(intervals > 0) & (intervals < len(starts))])
    return len(filled_intervals) >= MIN_EVEN_SHARE * (len(starts) - 1)
