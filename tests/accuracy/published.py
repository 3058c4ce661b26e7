"""Print the reduction's result for three jobs with published stragglers, next to the publication.

    python -m tests.accuracy.published FOLDER

FOLDER has bytedance_AR.parquet, bytedance_ST.parquet and bytedance_SE.parquet: operations of "Understanding Stragglers in
Large Model Training Using What-if Analysis" (OSDI 2025). The summaries of the ranks are made from the communication. The time
between two operations counts as computation. The recorder left out two waits, both before the all-reduce of layer norms: the
last stage's ranks wait for each other, and so do the first pipeline's stages.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.cluster.mapping import SUFFIX
from sawtooth.analysis.cluster.reduction import JobOverview, reduce_job
from sawtooth.analysis.cluster.storage import storage_at
from sawtooth.analysis.cluster.summary import pack
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.run.job import SEND_RECEIVE
from sawtooth.ingest.schema import DataFolder

BAR = 0.03  # Share of the published slowdown.
TOGETHER = 0.01  # Share of a step. Stages of the first pipeline that wait for each other continue within this time.
COMPUTE = ("forward-compute", "backward-compute")
TO_NEXT, TO_PREVIOUS = ("forward-send", "backward-recv"), ("forward-recv", "backward-send")
LAST_WORK, NORMS = ("backward-compute", "backward-send"), "layernorm-grads-all-reduce"
CALLS = {  # Operation: name of the collective, and its group.
    "params-all-gather": ("allgather", "stage"),
    "grads-reduce-scatter": ("reducescatter", "stage"),
    "embedding-grads-all-reduce": ("allreduce", "pipeline"),
    "optimizer-clip-main-grad": ("allreduce", "job"),
}
COLUMNS = ["position", "step", "start_ns", "end_ns", "name", "group", "peer"]


@dataclass(frozen=True)
class Published:
    """The published facts of a job: its slowdown, and the stage or rank that causes it.

    ``kind`` is None if the publication names no cause.
    """

    slowdown: float
    kind: str | None = None
    stage: int | None = None
    rank: int | None = None


PUBLISHED = {"AR": Published(1.97, "rank", rank=0), "ST": Published(1.18, "stage", stage=3), "SE": Published(1.54)}


def operations(path: Path) -> pd.DataFrame:
    """Return the operations in ``path`` with start_ns, end_ns and position, and steps in sequence.

    The position numbers the ranks without gaps.
    """
    rows = pd.read_parquet(path).astype({"optype": object, "stage": int, "dp_rank": int, "rank": int})
    begin = (rows["start_ts"].astype(float) * 1e9).round().astype(np.int64)
    end = begin + (rows["duration"].astype(float) * 1e9).round().astype(np.int64)
    steps = end.groupby(rows["step"]).max().cumsum().shift(fill_value=0).astype(np.int64)
    after = rows["step"].map(steps)
    ranks = {rank: position for position, rank in enumerate(sorted(rows["rank"].unique()))}
    return rows.assign(start_ns=begin + after, end_ns=end + after, position=rows["rank"].map(ranks), peer=pd.NA)


def calls(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the communication of ``rows`` in the form of a rank's trace.

    A batch of sends and receives with one other rank is one kernel.
    """
    meets = {
        "stage": "stage " + rows["stage"].astype(str),
        "pipeline": "pipeline " + rows["dp_rank"].astype(str),
        "job": pd.Series("job", index=rows.index),
    }
    collectives = [
        chosen.assign(name=name, group=meets[members])
        for kind, (name, members) in CALLS.items()
        if len(chosen := rows[rows["optype"] == kind])
    ]
    place = rows.groupby(["dp_rank", "stage"])["position"].first().to_dict()
    sent = rows[rows["optype"].isin((*TO_NEXT, *TO_PREVIOUS))]
    other = sent["stage"] + np.where(sent["optype"].isin(TO_NEXT), 1, -1)
    sent = sent.assign(name=SEND_RECEIVE, group="", peer=[place[at] for at in zip(sent["dp_rank"], other, strict=True)])
    batches = sent.groupby(["position", "step", "start_ns", "peer"], as_index=False).agg(
        {"end_ns": "max", "name": "first", "group": "first"}
    )
    every = pd.concat(
        [item[COLUMNS] for item in (*_ending_at_once([*collectives, *_left_out(rows)]), batches)], ignore_index=True
    )
    return every.sort_values(["position", "start_ns", "end_ns"], kind="stable", ignore_index=True)


def _ending_at_once(collectives: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Give all ranks of a collective the same end, the earliest one.

    A collective is one group and step. The recording's ends are milliseconds apart.
    """
    for item in collectives:
        end_ns = item.groupby(["group", "step"])["end_ns"].transform("min")
        yield item.assign(end_ns=np.maximum(end_ns, item["start_ns"]))


def _left_out(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the two waits that the recorder left out, as all-reduces.

    The second one exists only in jobs whose first pipeline's stages continue at the same time.
    """
    done = rows[rows["optype"].isin(LAST_WORK)].groupby(["position", "step"])["end_ns"].max().rename("done_ns")
    norms = rows[rows["optype"] == NORMS].drop(columns="end_ns").join(done, on=["position", "step"])
    norms = norms.assign(name="allreduce", next_ns=norms["start_ns"])
    last = norms[norms["stage"] == norms["stage"].max()]
    others = last[last["dp_rank"] > 0].groupby("step")["next_ns"].min()
    loss_ns = np.maximum(last["step"].map(others), last.groupby("step")["done_ns"].transform("max"))
    last = last.assign(start_ns=last["done_ns"], end_ns=loss_ns, group="loss")
    first = norms[norms["dp_rank"] == 0]
    separate = first.groupby("step")["next_ns"].agg(lambda at: at.max() - at.min())
    if (separate > TOGETHER * (rows["end_ns"].max() / rows["step"].nunique())).mean() > 0.5:
        return [last]
    end_ns = first.groupby("step")["next_ns"].transform("min")
    begin_ns = last["end_ns"].reindex(first.index).fillna(first["done_ns"])
    return [last, first.assign(start_ns=np.minimum(begin_ns, end_ns), end_ns=end_ns, group="first pipeline")]


def summaries(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the summary of each rank of the job whose operations are ``rows``."""
    of_job = calls(rows)
    sizes = of_job.groupby("group")["position"].nunique()
    world, steps = int(rows["position"].nunique()), sorted(rows["step"].unique())
    bounds = rows.groupby("step").agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    step_ms = float((bounds["end_ns"] - bounds["start_ns"]).mean()) / 1e6
    number = {step: i for i, step in enumerate(steps)}
    return [
        {
            "kind": "trace",
            "source": f"{position}.json",
            "state": "",
            "id": f"{position:016x}",
            "rank": position,
            "world": world,
            "job": "published",
            "device": 0,
            "pids": [],
            "first_ns": 0,
            "step_ms": step_ms,
            "step": [
                {"label": str(step), "counted": True, "start_ns": int(at["start_ns"]), "end_ns": int(at["end_ns"])}
                for step, at in bounds.iterrows()
            ],
            "lost": [],
            "held_ms": 0.0,
            "quiet": [],
            "beside": [],
            "call": [
                {
                    "name": call.name,
                    "group": call.group,
                    "group_size": int(sizes[call.group]) if call.group else 2,
                    "peer": None if pd.isna(call.peer) else int(call.peer),
                    "described": True,
                    "step": number[call.step],
                    "start_ns": int(call.start_ns),
                    "dur_ns": int(call.end_ns - call.start_ns),
                    "exposed_ns": int(call.end_ns - call.start_ns),
                    "exposed_from_ns": 0,
                }
                for call in of_rank.itertuples()
            ],
        }
        for position, of_rank in of_job.groupby("position")
    ]


def reduced(path: Path, scratch: Path) -> JobOverview:
    """Return the reduction's result for the job whose operations are in ``path``."""
    place = scratch / "summaries"
    place.mkdir()
    for row in summaries(operations(path)):
        (place / f"{row['id']}{SUFFIX}").write_bytes(pack([row]))
    data = DataFolder(scratch / "data").create()
    return reduce_job(JobTables(data.summaries_file(gather(storage_at(str(place)), data))))


def main(folder: Path) -> None:
    """Print the table."""
    print("| job | ranks | slowdown, published | slowdown | error | cause, published | cause | step gains |")
    print("|---|---:|---:|---:|---:|---|---|---:|")
    for name, published in PUBLISHED.items():
        path = folder / f"bytedance_{name}.parquet"
        with tempfile.TemporaryDirectory() as scratch:
            overview = reduced(path, Path(scratch))
        stage = operations(path).drop_duplicates("position").set_index("position")["stage"]
        expected = f"rank {published.rank}" if published.kind == "rank" else f"stage {published.stage}"
        blamed = [
            f"rank {late.ranks[0]}" if late.kind == "rank" else f"{late.kind} {stage[late.positions[0]]}"
            for late in overview.stragglers
        ]
        slowdown = overview.slowdown or 1.0
        gains = ", ".join(f"{late.gain_ms:.0f} ms" for late in overview.stragglers)
        print(
            f"| {name} | {len(overview.ranks)} | {published.slowdown:.2f} | {slowdown:.3f} | {slowdown / published.slowdown - 1:+.1%} "
            f"| {expected if published.kind else 'nobody'} | {', '.join(blamed) or 'nobody'} | {gains} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
