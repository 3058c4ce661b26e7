"""The process groups of a job: what kind of parallelism each serves, how much it moves, how fast, and what of it computation hides.

A group's description or name says what it is for where the program gave one. Else its collectives do: sends and receives pass a pipeline's
activations, all-to-alls the tokens of experts, an all-reduce before the backward pass is tensor parallel, and what is reduced later are gradients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pandas as pd

from sawtooth.analysis.knowledge.hardware import link_of
from sawtooth.analysis.ranks.communication import BUS_FACTORS
from sawtooth.analysis.ranks.job import peers
from sawtooth.analysis.ranks.job_step import own_works
from sawtooth.analysis.ranks.pipeline import pipeline_of
from sawtooth.analysis.run.job import SEND_RECEIVE, Communication, GroupUse, Parallelism
from sawtooth.analysis.run.model import RankResult

# Words of PyTorch's device meshes, Megatron-LM, DeepSpeed and torchtitan; the first match wins.
WORDS: dict[Parallelism, str] = {
    "ep": "ep|expert|moe",
    "pp": "pp|pipe|pipeline|stage",
    "tp": "tp|sp|tensor|sequence",
    "cp": "cp|context",
    "dp": "dp|ddp|fsdp|hsdp|data|shard|replicate",
}
CALLED = {kind: re.compile(rf"(?:^|[^a-z])(?:{words})(?:[^a-z]|$)", re.IGNORECASE) for kind, words in WORDS.items()}
SCHEDULE_UNKNOWN = "Ranks send to each other, and the schedule of their pipeline is not recognised: what its stages wait by design is not known."
FEWEST_CALLS = 2  # a step before the backward pass: tensor parallelism has one a layer, a loss or a metric is reduced once


def with_parallelism(ranks: Sequence[RankResult], communication: Communication) -> Communication:
    """Return ``communication`` with its process groups and its pipeline's schedule; ``ranks`` are at their job's step.

    Of representatives alone the groups are not told: what a transfer takes is not known where most of a group's ranks are not here.
    """
    rows = communication.rows
    if rows.empty:
        return communication
    works = own_works(ranks, communication)
    schedule = None
    if len(works) == len(ranks):
        work_ms = [work.kernel_ns / 1e6 for work in works]
        schedule = pipeline_of(rows, communication.ranks, ranks, peers(rows, len(ranks)), work_ms)
    unknown = (SCHEDULE_UNKNOWN,) if communication.pipeline and schedule is None else ()
    return replace(
        communication,
        groups=group_uses(rows, ranks) if communication.job_ranks is None else (),
        schedule=schedule,
        notes=(*communication.notes, *unknown),
    )


def group_uses(rows: pd.DataFrame, ranks: Sequence[RankResult]) -> tuple[GroupUse, ...]:
    """Return what the job's process groups do in a counted step, most time first: one entry per kind of group, however many groups there are of it.

    ``rows`` are the matched collectives (of ``matching.match``). Times are means over the ranks that take part.
    """
    counted = rows[rows["counted"]]
    if counted.empty:
        return ()
    hosts = pd.Series([rank.host for rank in ranks], dtype=object)
    groups = counted.assign(host=counted["position"].map(hosts), p2p=counted["name"] == SEND_RECEIVE)
    facts = []
    for (group, p2p), mine in groups.groupby(["group", "p2p"], sort=False):
        facts.append(
            {
                "group": group,
                "p2p": p2p,
                "parallelism": "pp" if p2p else parallelism(mine),
                "size": int(mine["group_size"].max()) if mine["group_size"].notna().any() else int(mine["ranks"].max()),
                "within_host": _within_host(mine, ranks),
            }
        )
    table = groups.merge(pd.DataFrame(facts), on=["group", "p2p"])
    steps = max(min(len(rank.counted) for rank in ranks), 1)
    uses = [
        _use(mine, steps, ranks) for _, mine in table.groupby(["parallelism", "size", "within_host"], dropna=False, sort=False)
    ]
    return tuple(sorted(uses, key=lambda use: -use.transfer_ms))


def parallelism(rows: pd.DataFrame) -> Parallelism | None:
    """Return what kind of parallelism the collectives of one group serve; None where neither its name nor they say."""
    for text in (*rows["description"].dropna().unique()[:1], *rows["group"].unique()[:1]):
        name = str(text).split(" [", 1)[0]
        if name not in ("default_pg", "undefined") and (
            kind := next((k for k, word in CALLED.items() if word.search(name)), None)
        ):
            return kind
    each = rows.drop_duplicates("collective")
    spent = each.groupby("name")["shortest_ns"].sum()
    most = str(spent.idxmax())
    steps = max(each["step"].nunique(), 1)
    early = each[each["forward"].fillna(False).astype(bool) & each["name"].isin(("allreduce", "reducescatter"))]
    if most == "alltoall":
        return "ep"
    if len(early) >= FEWEST_CALLS * steps:
        return "tp"
    return "dp" if most in ("allreduce", "reducescatter", "allgather") else None


def _within_host(rows: pd.DataFrame, ranks: Sequence[RankResult]) -> bool | None:
    """Tell whether the ranks of one group share a host; by their devices' numbers, which are each a host's own, where the traces name no host."""
    if rows["host"].notna().all():
        return bool(rows["host"].nunique() == 1)
    devices = [ranks[int(position)].device for position in rows["position"].unique()]
    return True if len(set(devices)) == len(devices) else None


def _use(rows: pd.DataFrame, steps: int, ranks: Sequence[RankResult]) -> GroupUse:
    once = rows.drop_duplicates("collective")
    members = max(rows["position"].nunique(), 1)
    sized = once[once["bytes"].notna() & (once["shortest_ns"] > 0)]
    moved, took = float(sized["bytes"].sum()), float(sized["shortest_ns"].sum())
    factors = [
        BUS_FACTORS[name](size) if name in BUS_FACTORS else 1.0 for name, size in zip(sized["name"], sized["size"], strict=True)
    ]
    on_wire = float((sized["bytes"].astype(float) * factors).sum())
    transfers = float((rows["dur_ns"] - rows["wait_ns"]).sum())
    exposed = float((rows["exposed_ns"] - rows["exposed_wait_ns"]).sum())
    first = rows.iloc[0]
    within = None if pd.isna(first["within_host"]) else bool(first["within_host"])
    gpu = ranks[int(first["position"])].gpu
    link = link_of(gpu.name, "gpus" if within else "hosts") if gpu is not None and within is not None else None
    return GroupUse(
        parallelism=cast("Parallelism | None", first["parallelism"]),
        groups=rows["group"].nunique(),
        group_size=int(first["size"]),
        within_host=within,
        kinds=tuple(once["name"].value_counts().index.astype(str)),
        calls_per_step=len(rows) / members / steps,
        bytes_per_step=moved / max(once["group"].nunique(), 1) / steps if len(sized) else None,
        smallest_bytes=int(sized["bytes"].min()) if len(sized) else None,
        largest_bytes=int(sized["bytes"].max()) if len(sized) else None,
        transfer_ms=transfers / members / steps / 1e6,
        exposed_ms=exposed / members / steps / 1e6,
        algorithm_gb_s=moved / took if took else None,
        bus_gb_s=on_wire / took if took else None,
        link=link.name if link is not None else None,
        link_gb_s=link.gb_s if link is not None else None,
    )
