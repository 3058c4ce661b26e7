"""``/api/v1/find``: the runs, findings and kernels that the search of every page (Ctrl-K) offers."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.analysis.result_cache import STAIRS, cached_file, cached_result, stairs_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.tables.kernels import kernels
from sawtooth.app.api.answers import answer_errors, json
from sawtooth.app.charts import rankings
from sawtooth.app.library import library
from sawtooth.app.places import address
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.runs.listing import listed
from sawtooth.app.settings import settings
from sawtooth.app.words import advice
from sawtooth.ingest.errors import SawtoothError

MAX_RUNS, MAX_KERNELS = 2000, 300
LIST_CHARACTERS, SEARCH_CHARACTERS = 64, 200  # Characters of a kernel's name in the list, and in the address of its search.

Entry = tuple[str, str, str]  # Kind, name and address.


@answer_errors
async def index(request: Request) -> Response:
    """Return the runs, newest first, and the findings and kernels of the run ``?run=``, if it is analysed."""
    return json({"entries": await run_in_threadpool(_entries, request.query_params.get("run", ""))})


def _entries(run: str) -> list[Entry]:
    manifests = settings().data.manifests()
    chosen = next((manifest for manifest in manifests if manifest.id == run), None)
    names = distinct_names(manifests)
    entries: list[Entry] = [
        ("Run", names[manifest.id], address("verdict", {"run": manifest.id})) for manifest in listed(manifests)[:MAX_RUNS]
    ]
    if chosen is not None and (result := cached_result(chosen, settings().data)) is not None:
        entries += [*_findings(result), *_kernels(result)]
    return entries


def _findings(result: RunResult) -> Iterator[Entry]:
    """Yield the findings; the address of a finding with a bar on the Verdict opens this bar."""
    # Computing a staircase here would take seconds.
    has_stairs = cached_file(settings().data, result.manifest, STAIRS).exists()
    stairs = stairs_of(library(), result) if has_stairs else None
    bars = {rule: str(number) for number, rule in enumerate(stairs.changes if stairs is not None else (), 1)}
    for number, finding in advice.numbered(result):
        bar = {"open": bars[finding.rule]} if finding.rule in bars else {}
        yield f"Finding {number}", finding.title, address("verdict", {"run": result.manifest.id, **bar})


def _kernels(result: RunResult) -> Iterator[Entry]:
    """Yield the longest kernels of the lead rank; none if the recording cannot be read."""
    if result.lead is None:
        return
    try:
        with open_rank(library(), result.lead) as view:
            names = kernels(view)["name"].head(MAX_KERNELS).tolist()
    except SawtoothError:
        return
    for name, short in zip(names, rankings.distinct_names(names, LIST_CHARACTERS), strict=True):
        yield "Kernel", short, address("work", {"run": result.manifest.id, "name": name[:SEARCH_CHARACTERS]})
