"""Find the tokens that the steps of a text generation make one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext

FEWEST_TOKENS = 4  # Per step. Fewer tokens say little about the time of one.
# Share of the tokens that must have the usual number of kernels. The last token may end the text, so it may differ.
EVEN_SHARE = 0.9
FEWEST_KERNELS = 5  # Per token. Fewer kernels belong to a loop of calls.
# Every token is looked up in the embedding and chosen from the logits. The equal layers of an encoder (ViT, BERT) and the
# denoising passes of a diffusion model do not do both.
LOOKS_UP = r"^aten::(?:embedding|index_select|gather)$"
CHOOSES = r"^aten::(?:argmax|multinomial|topk|sort|max)$"


@dataclass(frozen=True)
class Generation:
    """The tokens of steps that each read a prompt and then make one token after the other.

    ``first`` has the gpu_op_id that begins each token, in all counted steps. ``per_step`` is the average number of tokens per
    step. ``prompt_share`` is the share of the profiled steps' time before the first token.
    """

    first: tuple[int, ...]
    per_step: float
    prompt_share: float


def generation(context: RuleContext) -> Generation | None:
    """Return the tokens of a run whose counted steps generate text; None for other runs.

    Steps with a backward pass, or without an even rhythm, are not generation. A token begins where an operator with the same
    inputs repeats, with equally many kernels between repetitions. Each token must choose from the logits and look up the next
    one. The layers of an encoder repeat as evenly, but they do neither.
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

    Of the most regular repetitions, this is the one with the longest period that begins first. None if the repeated parts do
    not both choose and look up a token.
    """
    kinds = part.groupby(["operator", "signature_id", "kernel"], sort=False).ngroup().to_numpy()
    rhythms: list[np.ndarray] = []
    for kind in np.unique(kinds):
        at = np.flatnonzero(kinds == kind)
        if len(at) < FEWEST_TOKENS:
            continue
        lengths = np.append(np.diff(at), len(kinds) - at[-1])
        usual = int(np.median(lengths))
        if usual >= FEWEST_KERNELS and (np.abs(lengths - usual) <= 1).mean() >= EVEN_SHARE:
            rhythms.append(at)
    decoding = [np.flatnonzero(part["operator"].str.contains(does)) for does in (LOOKS_UP, CHOOSES)]
    rhythms = [at for at in rhythms if all(_in_each(at, places) for places in decoding)]
    return min(rhythms, key=lambda at: (len(at), int(at[0]))) if rhythms else None


def _in_each(starts: np.ndarray, places: np.ndarray) -> bool:
    """Return whether nearly every interval between two ``starts`` contains one of ``places``."""
    intervals = np.searchsorted(starts, places, side="right")
    between = np.unique(intervals[(intervals > 0) & (intervals < len(starts))])
    return len(between) >= EVEN_SHARE * (len(starts) - 1)
