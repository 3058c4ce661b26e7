"""Measure the cost of reducing a job of thousands of ranks.

    python -m tests.benchmarks.many_ranks SUMMARIES OUT [--ranks 10000]

SUMMARIES is the output of ``sawtooth map`` for some hosts' ranks. They are copied to further hosts in OUT until there are
``--ranks`` ranks. A group within a host is copied too; a group across hosts spans all copies. It prints processor seconds and
peak memory of gathering and of reducing. ``sawtooth reduce OUT/summaries`` makes a run of the summaries. Only representatives
of the first copy have files in it, because only their sources exist.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from sawtooth.analysis.cluster.reduction import reduce_job
from sawtooth.analysis.cluster.storage import Folder, storage_at
from sawtooth.analysis.cluster.summary import pack, unpack
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.ingest.schema import DataFolder


def copied(rows: list[dict], copy: int, hosts: dict[str, list[str]], world: int) -> list[dict]:
    """Return the rows of one copy with other ranks, hosts and recordings.

    Groups within one host are renamed.
    """
    own = {group for group, on in hosts.items() if len(on) == 1}
    out = []
    for row in rows:
        calls = [
            {**call, "group": f"{call['group']} of copy {copy}"} if call["group"] in own else {**call, "group_size": None}
            for call in row["call"]
        ]
        out.append(
            {
                **row,
                "rank": row["rank"] + copy * len(rows),
                "world": world,
                "host": f"{row['host']}-{copy}",
                "id": f"{copy:04x}{row['id'][4:]}" if copy else row["id"],
                "source": f"{row['source']}-{copy}" if copy else row["source"],
                "call": calls,
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summaries")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=10_000)
    options = parser.parse_args()
    place = storage_at(options.summaries)
    rows = [row for name in sorted(place.names()) for row in unpack(place.read(name)).to_pylist()]
    rows = sorted((row for row in rows if row["kind"] == "trace"), key=lambda row: row["rank"])
    hosts: dict[str, list[str]] = {}
    for row in rows:
        for group in {call["group"] for call in row["call"]}:
            hosts[group] = sorted({*hosts.get(group, ()), row["host"]})
    copies = -(-options.ranks // len(rows))
    to = Folder(options.out / "summaries")
    to.root.mkdir(parents=True, exist_ok=True)
    for copy in range(copies):
        for row in copied(rows, copy, hosts, copies * len(rows)):
            (to.root / f"{row['rank']:016x}-copy.rank.parquet").write_bytes(pack([row]))
    data = DataFolder(options.out / "data").create()
    began = time.process_time()
    summaries_id = gather(to, data)
    gathered = time.process_time()
    overview = reduce_job(JobTables(data.summaries_file(summaries_id)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(overview.ranks):,} ranks, {data.summaries_file(summaries_id).stat().st_size / 1e6:.1f} MB")
    print(f"gather {gathered - began:.1f} CPU s, reduce {time.process_time() - gathered:.1f} CPU s, peak {peak_mb:.0f} MB")
    for late in overview.stragglers[:4]:
        print(late.kind, late.ranks[:4], len(late.ranks), late.reason, f"{late.own_ms:.2f} ms, gains {late.gain_ms:.2f} ms")


if __name__ == "__main__":
    main()
