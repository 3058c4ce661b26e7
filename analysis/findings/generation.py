"""Find the tokens that the steps of a text generation produce one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext

MIN_TOKENS = 4  # Tokens per step. Fewer do not show the time of one token.
# Share of the tokens that must have the usual number of kernels. The last token may differ, because it may end the text.
EVEN_SHARE = 0.9
MIN_KERNELS = 5  # Per token. A loop with fewer kernels is not a model's forward pass.
# For every token, the embedding is looked up and the next token is chosen from the logits. The equal layers of an encoder (ViT,
# BERT) and the denoising passes of a diffusion model do not do both.
LOOKS_UP = r"^aten::(?:embedding|index_select|gather)$"
CHOOSES = r"^aten::(?:argmax|multinomial|topk|sort|max)$"


@dataclass(frozen=True)
class Generation:
    """The tokens of steps that each read a prompt and then produce one token after the other.

    ``first`` has the gpu_op_id that begins each token, in all counted steps. ``per_step`` is the average number of tokens per
    step. ``prompt_share`` is the share of the profiled steps' time before the first token.
    """

    first: tuple[int, ...]
    per_step: float
    prompt_share: float


def generation(context: RuleContext) -> Generation | None:
    """Return the tokens of a run whose counted steps generate text; None for other runs.

    Steps with a backward pass, or without an even rhythm, are not generation. A token begins where an operator with the same
    inputs repeats, with equally many kernels between repetitions. Between repetitions, the model must choose a token from the
    logits and look up its embedding. The layers of an encoder repeat as evenly, but do neither.
    """
    work = context.work[context.work["signature_id"].notna() & context.work["operator"].notna()]
    if work.empty or len(context.launches.in_backward()):
        return None
    begins: list[np.ndarray] = []
    before_ns = 0
    for step, part in work.groupby("step", sort=True):
        first = _token_starts(part)
        if first is None:
            return None
        begins.append(part["gpu_op_id"].to_numpy(np.int64)[first])
        spans = context.rank.steps[context.rank.steps["step"] == step]
        before_ns += int(part["start_ns"].to_numpy(np.int64)[first[0]]) - int(spans["start_ns"].iloc[0])
    counted = context.rank.counted
    steps_with_work = counted[counted["step"].isin(work["step"].unique())]
    lasts_ns = int((steps_with_work["end_ns"] - steps_with_work["start_ns"]).sum())
    tokens = np.concatenate(begins)
    return Generation(tuple(tokens.tolist()), len(tokens) / len(begins), max(before_ns, 0) / lasts_ns if lasts_ns > 0 else 0.0)


def _token_starts(part: pd.DataFrame) -> np.ndarray | None:
    """Return the positions in one step's work at which tokens begin.

    Of the most regular repetitions, take those with the longest period that begin first. None if a repeated part does not both
    choose and look up a token.
    """
    kinds = part.groupby(["operator", "signature_id", "kernel"], sort=False).ngroup().to_numpy()
    rhythms: list[np.ndarray] = []
    for kind in np.unique(kinds):
        at = np.flatnonzero(kinds == kind)
        if len(at) < MIN_TOKENS:
            continue
        lengths = np.append(np.diff(at), len(kinds) - at[-1])
        usual = int(np.median(lengths))
        if usual >= MIN_KERNELS and (np.abs(lengths - usual) <= 1).mean() >= EVEN_SHARE:
            rhythms.append(at)
    decoding = [np.flatnonzero(part["operator"].str.contains(does)) for does in (LOOKS_UP, CHOOSES)]
    rhythms = [at for at in rhythms if all(_in_each(at, places) for places in decoding)]
    return min(rhythms, key=lambda at: (len(at), int(at[0]))) if rhythms else None


def _in_each(starts: np.ndarray, places: np.ndarray) -> bool:
    """Return whether nearly every interval between two ``starts`` contains one of ``places``."""
    intervals = np.searchsorted(starts, places, side="right")
    filled_intervals = np.unique(intervals[(intervals > 0) & (intervals < len(starts))])
    return len(filled_intervals) >= EVEN_SHARE * (len(starts) - 1)
