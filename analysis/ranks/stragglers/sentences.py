"""Stragglers in words: which ranks delay the job, and why."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.run.job import RankGroup, Straggler
from sawtooth.analysis.run.model import RankResult

NAMED_RANKS = 4  # Largest number of ranks that a sentence names. For more ranks, their number is more useful.
INTERRUPTED = "kernels interrupted for milliseconds, as by another process on its GPU"
REASONS = {
    "work": "more kernel work",
    "copies": "more copies between its host and its GPU",
    "clock": "a lower GPU clock",
    "power": "its GPU's power limit",
    "turns": INTERRUPTED,
}


def straggler_name(straggler: Straggler | RankGroup, ranks: Sequence[RankResult]) -> str:
    """Return the straggler's name for a sentence.

    Examples: "rank 5", "ranks 2 and 5", "host node0002 with its 8 ranks", "16 ranks on hosts node0002 and node0005".
    """
    # In a job with many ranks, the run has the traces of only some ranks. A late rank without a trace has no position in ``ranks``.
    kind, names = "rank", [str(rank) for rank in straggler.ranks if rank is not None]
    if not names and len({rank.device for rank in ranks}) == len(ranks):
        kind, names = "device", [str(ranks[p].device) for p in straggler.positions]
    elif not names:  # Device numbers repeat, because each host numbers its devices from 0.
        kind, names = "trace", [ranks[p].trace.source_name for p in straggler.positions]
    if straggler.kind == "host":
        return f"host {straggler.host} with its {len(straggler.ranks)} {kind}s"
    listed = f"{kind} {names[0]}" if len(names) == 1 else f"{kind}s {_listed(names)}"
    if len(straggler.ranks) > NAMED_RANKS:
        positions = straggler.positions if len(straggler.positions) == len(straggler.ranks) else ()
        hosts = sorted({ranks[p].host or "" for p in positions})
        name_hosts = all(hosts) and 1 < len(hosts) <= NAMED_RANKS
        listed = f"{len(straggler.ranks)} {kind}s{f' on hosts {_listed(hosts)}' if name_hosts else ''}"
    return f"the pipeline stage of {listed}" if straggler.kind == "stage" else listed


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def straggler_cause(straggler: Straggler) -> str | None:
    """Return the cause of the lost time, to follow "it is …"; None if it is unknown."""
    several = straggler.kind != "host" and len(straggler.ranks) > 1
    if straggler.kernel_ratio is not None and straggler.reason is None:
        gpus, prefix = ("their GPUs", "up to ") if len(straggler.ranks) > 1 else ("its GPU", "")
        return f"equal kernels that take {prefix}{straggler.kernel_ratio:.2f} times as long on {gpus}"
    if straggler.reason is None:
        return None
    reason = REASONS.get(straggler.reason) or CAUSE_OF[straggler.reason].late_rank
    return reason.replace("its ", "their ") if several and reason is not None else reason
