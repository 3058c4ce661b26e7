"""The MCP server: seven tools on one data folder.

``Tools`` computes the tools' answers. Only ``ingest`` differs between stdio and HTTP. Over stdio it takes paths on this machine. Over
HTTP it takes uploads, because a remote caller must not name files of the server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.version import TOOL_VERSION
from sawtooth.app.agent import answers
from sawtooth.app.agent.tools import Tools
from sawtooth.app.agent.what_if import Changes, KernelTime, LessLostTime, WhatIfPrediction
from sawtooth.app.page.reference import columns
from sawtooth.ingest.errors import SawtoothError

INSTRUCTIONS = """Sawtooth says why the GPU of a PyTorch training waits, what to change, and how long a step takes afterwards.
Start with list_runs, or ingest a trace. Then call report: it shows where a step's time goes, and the findings.
Call explain for the evidence and the code of a finding, and what_if for the step time after one or several changes.
When a change has been made and recorded, call compare: it says whether the new run is faster, with an interval.
Quote intervals and the words "predicted" or "measured". Never add the gains of two findings; call what_if with both."""
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
MAX_CALLS = 2  # Calls at one time. Each call may use a core, and pages need the other cores.
SLOT_TIMEOUT_SECONDS = 60.0  # A call waits this long for one of the MAX_CALLS slots.
P = ParamSpec("P")
R = TypeVar("R")

Run = Annotated[str, Field(description="Id or name of a run, as list_runs shows it.")]
Ingest = Callable[..., answers.IngestedRuns]  # The function behind the tool ``ingest``. The tool has its parameters.


@contextmanager
def refusals() -> Iterator[None]:
    """Pass the sentences of Sawtooth's errors to the model; the SDK hides all other errors."""
    try:
        yield
    except SawtoothError as error:
        raise ToolError(str(error)) from error


def mcp_server(tools: Tools, ingest: Ingest, *, ingest_in_jobs: bool = False) -> MCPServer:
    """Return a server of ``tools``.

    ``ingest`` is the tool that reads files, with its own parameters and description. With ``ingest_in_jobs``, a job in another
    process reads the files, so the call needs no slot.
    """
    slots = threading.BoundedSemaphore(MAX_CALLS)

    def with_refusals(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with refusals():
                return function(*args, **kwargs)

        return call

    def with_slot(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not slots.acquire(timeout=SLOT_TIMEOUT_SECONDS):
                raise ToolError("Other calls are still being answered. Try again in a minute.")
            try:
                return function(*args, **kwargs)
            finally:
                slots.release()

        return with_refusals(call)

    server = MCPServer(name="sawtooth", title="Sawtooth", version=TOOL_VERSION, instructions=INSTRUCTIONS)

    def read_only_tool(title: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        def add(function: Callable[P, R]) -> Callable[P, R]:
            return server.tool(title=title, annotations=READS)(with_slot(function))

        return add

    @read_only_tool("List runs")
    def list_runs(
        search: Annotated[str, Field(description="Text in the name or in a tag; if empty, all runs are listed.")] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 20,
    ) -> answers.RunList:
        """List recorded runs, newest first, with their step time and headline if they are analysed."""
        return tools.list_runs(search, limit)

    @read_only_tool("Report a run")
    def report(run: Run) -> answers.RunReport:
        """Show where a run's step time goes, what the GPU waits for, and what to change with which gain."""
        return answers.report_of(tools.result(run))

    @read_only_tool("Compare two runs")
    def compare(
        before: Annotated[str, Field(description="Id or name of the run before the change.")],
        after: Annotated[str, Field(description="Id or name of the run after the change.")],
    ) -> answers.RunComparison:
        """Say whether the run after a change is faster or slower, or that this cannot be decided, and why."""
        return tools.compare(before, after)

    @read_only_tool("Predict a step after changes")
    def what_if(
        run: Run,
        *,
        findings: Annotated[
            list[str] | None, Field(description="Keys of findings in the report; the changes they propose are applied.")
        ] = None,
        lost_time: Annotated[list[LessLostTime] | None, Field(description="Causes of the report's `lost` to reduce.")] = None,
        kernels: Annotated[list[KernelTime] | None, Field(description="Kernels that become faster or slower.")] = None,
        host_time_factor: Annotated[
            float | None,
            Field(description="Factor on the host's time, during and between launches: 0.5 halves it."),
        ] = None,
        cuda_graph: Annotated[bool, Field(description="Launch each step as one CUDA graph.")] = False,
        batch_factor: Annotated[
            float | None, Field(description="New batch size as a multiple of the old; predicted alone, without other changes.")
        ] = None,
    ) -> WhatIfPrediction:
        """Predict the step time after one or several changes, with an interval.

        Gains do not add up: give all changes in one call.
        """
        return tools.what_if(
            run,
            Changes(findings or (), lost_time or (), kernels or (), host_time_factor, cuda_graph, batch_factor),
        )

    @read_only_tool("Query a run's tables")
    def query(
        run: Run,
        sql: Annotated[str, Field(description="One SELECT in DuckDB's dialect, such as DESCRIBE gpu_ops.")],
        rank: Annotated[int | None, Field(description="Rank of the job; by default the one that the report is about.")] = None,
        limit: Annotated[int, Field(ge=1, le=2000, description="Rows of the answer.")] = 200,
    ) -> answers.Rows:
        """Run one read-only SQL statement on a run's tables, to find out what no other tool answers.

        Time and memory are limited.

        Times are integer nanoseconds. The main tables are gpu_ops (name_id, start_ns, dur_ns, stream, step), cpu_ops,
        runtime_calls, gaps (cause), steps, kernels, samples and names (name_id, name). The resource sawtooth://tables describes
        every column.
        """
        return tools.query(run, sql, rank, limit)

    @read_only_tool("Explain a finding")
    def explain(
        run: Run, finding: Annotated[str, Field(description="Key of a finding, as the report names it.")]
    ) -> answers.Explanation:
        """Show a finding's evidence, its source lines, the change to make, and when the rule is wrong."""
        return tools.explain(run, finding)

    server.tool(name="ingest", title="Ingest files", annotations=WRITES)(
        with_refusals(ingest) if ingest_in_jobs else with_slot(ingest)
    )
    _add_resources(server, tools)
    return server


def _add_resources(server: MCPServer, tools: Tools) -> None:
    @server.resource("sawtooth://tables", title="Tables and columns", mime_type="text/markdown")
    def tables() -> str:
        """Describe every table and column that `query` can read."""
        lines = ["| table | column | type | meaning |", "|---|---|---|---|"]
        return "\n".join([*lines, *(f"| {c.table} | {c.column} | {c.type} | {c.comment} |" for c in columns())])

    @server.resource("sawtooth://runs/{run}/report", title="Full report", mime_type="application/json")
    def full_report(run: str) -> str:
        """Return everything that `sawtooth report --format json` prints about a run."""
        with refusals():
            report: dict[str, Any] = dict(report_json(tools.result(run)))
        return json.dumps(report, default=str)
