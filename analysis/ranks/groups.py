"""The process groups of a job: kind of parallelism, bytes, speed and overlap with computation.

If the program gave a group a description or name, that shows the group's purpose. Otherwise the group's collectives show it:

* sends without receives pass a pipeline's activations;
* an all-reduce before the backward pass belongs to tensor parallelism;
* later reductions sum gradients, so they belong to data parallelism.

All-to-alls and other exchanges may serve experts, contexts or embeddings. Their purpose is known only if the trace has operators
that choose experts or exchange keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pandas as pd

from sawtooth.analysis.knowledge.hardware import link_of
from sawtooth.analysis.ranks.communication import BUS_FACTORS
from sawtooth.analysis.ranks.job_step import own_works
from sawtooth.analysis.ranks.peers import peers
from sawtooth.analysis.ranks.pipeline import pipeline_of
from sawtooth.analysis.run.job import SEND_RECEIVE, Communication, GroupUse, Parallelism
from sawtooth.analysis.run.model import RankResult

# Words in the group names of PyTorch's device meshes, Megatron-LM, DeepSpeed and torchtitan. The first match is used.
PARALLELISM_WORDS: dict[Parallelism, str] = {
    "ep": "ep|expert|moe",
    "pp": "pp|pipe|pipeline|stage",
    "tp": "tp|sp|tensor|sequence",
    "cp": "cp|context|ulysses|ring",
    "dp": "dp|ddp|fsdp|hsdp|data|shard|replicate",
}
# Groups with one of these words and a word of data parallelism ("dp_shard_cp", "EXPERT_DATA_PARALLEL") share gradients and weights,
# so they are data parallel.
SHARE_WEIGHTS_WITH_DATA = ("ep", "cp")
NAME_PATTERNS = {
    kind: re.compile(rf"(?:^|[^a-z])(?:{words})(?:[^a-z]|$)", re.IGNORECASE) for kind, words in PARALLELISM_WORDS.items()
}
SCHEDULE_UNKNOWN = "Ranks send to each other, but the schedule of their pipeline is not recognised. So it is not known how long the stages wait by design."
GROUP_COLUMNS = (
    "collective", "position", "step", "name", "group", "group_size", "description", "forward", "ranks", "bytes",
    "dur_ns", "shortest_ns", "wait_ns", "exposed_ns", "exposed_wait_ns", "sends", "receives", "serves",
)  # fmt: skip
# PyTorch's own descriptions, for groups that the program does not describe. They show no purpose.
DEFAULT_DESCRIPTIONS = ("default_pg", "undefined")
GRADIENT_COLLECTIVES = ("allreduce", "reducescatter", "allgather")
# Reductions per step before the backward pass. Tensor parallelism has at least one per layer. A loss or a metric is reduced only
# once.
MIN_FORWARD_REDUCTIONS = 2


@dataclass(frozen=True)
class RankLocation:
    """The place of a rank.

    ``host`` is None if unknown, ``device`` the number on that host, ``gpu`` the GPU's name, ``steps`` the number of counted
    steps.
    """

    host: str | None
    device: int
    gpu: str | None
    steps: int


def with_parallelism(ranks: Sequence[RankResult], communication: Communication) -> Communication:
    """Return ``communication`` with its process groups and pipeline schedule.

    ``ranks`` have the job's step. For a large job, ``ranks`` are only a few representatives. They do not show the groups, so
    ``communication`` is returned unchanged: the groups come from the summaries of all ranks.
    """
    rows = communication.rows
    if rows.empty or communication.job_ranks is not None:
        return communication
    works = own_works(ranks, communication)
    schedule = None
    if len(works) == len(ranks):
        work_ms = [work.kernel_ns / 1e6 for work in works]
        offsets_ns = [rank.clock_offset_ns or 0 for rank in communication.ranks]
        steps_ms = [rank.best.ms for rank in ranks if rank.best.ms is not None]
        schedule = pipeline_of(rows, offsets_ns, max(steps_ms, default=None), peers(rows, len(ranks)), work_ms)
    places = [RankLocation(rank.host, rank.device, rank.gpu.name if rank.gpu else None, len(rank.counted)) for rank in ranks]
    unknown = (SCHEDULE_UNKNOWN,) if communication.pipeline and schedule is None else ()
    return replace(
        communication,
        groups=group_uses(rows, places),
        schedule=schedule,
        notes=(*communication.notes, *unknown),
    )


def group_uses(rows: pd.DataFrame, places: Sequence[RankLocation]) -> tuple[GroupUse, ...]:
    """Return the work of the job's process groups in a counted step, longest first.

    There is one entry per kind of group, for all groups of that kind. ``rows`` are the matched collectives (of
    ``matching.match``), ``places`` the places of their ranks by position. Times are means over the ranks that take part. A
    rank's mean is over its own counted steps, because a rank with a cut trace may count fewer steps or none.
    """
    counted = rows.loc[rows["counted"].to_numpy(bool)].reindex(columns=list(GROUP_COLUMNS))
    if counted.empty:
        return ()
    p2p = (counted["name"] == SEND_RECEIVE).to_numpy()
    counted = counted.assign(key=pd.factorize(counted["group"])[0] * 2 + p2p)  # Sends and receives are separate rows.
    collectives = counted.drop_duplicates("collective")
    facts = collectives.groupby("key").agg(size=("group_size", "max"), ranks=("ranks", "max"))
    facts["size"] = facts["size"].fillna(facts["ranks"]).astype(int)
    facts["parallelism"] = parallelisms(collectives)
    facts["within_host"] = _within_hosts(counted, places)
    facts["kind"] = facts.groupby(["parallelism", "size", "within_host"], dropna=False, sort=False).ngroup()
    kinds = facts["kind"].reindex(counted["key"]).to_numpy()
    first = facts.drop_duplicates("kind").set_index("kind")
    uses = [_group_use(counted[kinds == kind], fact, places) for kind, fact in first.iterrows()]
    return tuple(sorted(uses, key=lambda use: -use.transfer_ms))


def parallelisms(collectives: pd.DataFrame) -> pd.Series:
    """Return, by ``key`` of a group, the kind of parallelism that its collectives serve.

    ``collectives`` has one row per collective. A value is None if neither the name nor the collectives show it.
    """
    reduces = collectives["forward"].fillna(False).astype(bool) & collectives["name"].isin(("allreduce", "reducescatter"))
    groups = collectives.assign(early=reduces).groupby("key")
    names = groups.agg(description=("description", "first"), group=("group", "first"))
    early = groups["early"].sum() >= MIN_FORWARD_REDUCTIONS * groups["step"].nunique().clip(lower=1)
    spent = collectives.groupby(["key", collectives["name"].astype(str)])["shortest_ns"].sum()
    largest = (
        spent.reset_index()
        .sort_values("shortest_ns", kind="stable")
        .drop_duplicates("key", keep="last")
        .set_index("key")["name"]
    )
    kinds = [
        _named_parallelism(name.description)
        or _named_parallelism(name.group)
        or _unnamed_parallelism(groups.get_group(key), longest, tensor=often)
        for (key, name), longest, often in zip(names.iterrows(), largest.reindex(names.index), early, strict=True)
    ]
    return pd.Series(kinds, names.index, dtype=object)


def _unnamed_parallelism(collectives: pd.DataFrame, longest: str, *, tensor: bool) -> Parallelism | None:
    """Return the parallelism that the collectives of a group without a name show.

    ``longest`` is the kind of collective with the most time. ``tensor`` says whether the group reduces in the forward pass.
    """
    if longest not in ("alltoall", SEND_RECEIVE):
        return "tp" if tensor else "dp" if longest in GRADIENT_COLLECTIVES else None
    serves: list[str] = list(collectives["serves"].dropna().unique()) if "serves" in collectives else []
    if len(serves) == 1:
        return cast("Parallelism", serves[0])
    if longest == SEND_RECEIVE:
        # A ring sends and receives in each exchange. A pipeline also has exchanges with only sends or only receives.
        is_ring = "sends" in collectives and ((collectives["sends"] > 0) & (collectives["receives"] > 0)).all()
        return None if is_ring else "pp"
    # Context parallelism gathers keys and values in the forward pass and returns their gradients by all-to-all.
    forward = collectives["forward"].fillna(False).astype(bool)
    exchanged = collectives[collectives["name"] == "alltoall"]
    gathered = set(collectives.loc[forward & (collectives["name"] == "allgather"), "bytes"].dropna())
    gathers = not forward[exchanged.index].any() and bool(gathered.intersection(exchanged["bytes"].dropna()))
    return "cp" if gathers else None


def _named_parallelism(text: object) -> Parallelism | None:
    """Return the parallelism that a group's description or name mentions; None if it mentions none."""
    name = text.split(" [", 1)[0] if isinstance(text, str) else ""
    kinds = [kind for kind, words in NAME_PATTERNS.items() if words.search(name)] if name not in DEFAULT_DESCRIPTIONS else []
    if "dp" in kinds and set(kinds) <= {"dp", *SHARE_WEIGHTS_WITH_DATA}:
        return "dp"
    return kinds[0] if kinds else None


def _within_hosts(rows: pd.DataFrame, places: Sequence[RankLocation]) -> pd.Series:
    """Return, by ``key``, whether the ranks of a group share a host.

    If the traces name no host, different device numbers mean one host, because each host numbers its own devices.
    """
    members = rows[["key", "position"]].drop_duplicates()
    members["host"] = [places[position].host for position in members["position"]]
    members["device"] = [places[position].device for position in members["position"]]
    groups = members.groupby("key")
    complete, distinct_devices = groups["host"].count() == groups.size(), groups["device"].nunique() == groups.size()
    single_host = (groups["host"].nunique() == 1).astype(object)
    return single_host.where(complete, distinct_devices.map({True: True, False: None}).astype(object))


def _group_use(rows: pd.DataFrame, fact: pd.Series, places: Sequence[RankLocation]) -> GroupUse:
    """Return the work of all groups of one kind, from their ``rows``; ``fact`` describes the kind."""
    collectives = rows.drop_duplicates("collective")
    members = rows[["group", "position"]].drop_duplicates()
    members["steps"] = [max(places[position].steps, 1) for position in members["position"]]
    rank_steps = int(members.drop_duplicates("position")["steps"].sum())
    group_steps = int(members.groupby("group")["steps"].max().sum())
    sized = collectives[collectives["bytes"].notna() & (collectives["shortest_ns"] > 0)]
    moved, took = float(sized["bytes"].sum()), float(sized["shortest_ns"].sum())
    factors = [BUS_FACTORS[name](int(fact["size"])) if name in BUS_FACTORS else 1.0 for name in sized["name"]]
    on_wire = float((sized["bytes"].astype(float) * factors).sum())
    transfers = float((rows["dur_ns"] - rows["wait_ns"]).sum())
    exposed = float((rows["exposed_ns"] - rows["exposed_wait_ns"]).sum())
    within = None if pd.isna(fact["within_host"]) else bool(fact["within_host"])
    gpu = places[int(rows["position"].iloc[0])].gpu
    link = link_of(gpu, "gpus" if within else "hosts") if gpu is not None and within is not None else None
    return GroupUse(
        parallelism=cast("Parallelism | None", fact["parallelism"]),
        groups=rows["group"].nunique(),
        group_size=int(fact["size"]),
        within_host=within,
        kinds=tuple(collectives["name"].astype(str).value_counts().index),
        calls_per_step=len(rows) / rank_steps,
        bytes_per_step=moved / group_steps if len(sized) else None,
        smallest_bytes=int(sized["bytes"].min()) if len(sized) else None,
        largest_bytes=int(sized["bytes"].max()) if len(sized) else None,
        transfer_ms=transfers / rank_steps / 1e6,
        exposed_ms=exposed / rank_steps / 1e6,
        algorithm_gb_s=moved / took if took else None,
        bus_gb_s=on_wire / took if took else None,
        link=link.name if link is not None else None,
        link_gb_s=link.gb_s if link is not None else None,
    )
