"""Tests of the MCP server: the tools' answers through the SDK's client, and access over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sawtooth.analysis.combined_changes import combined_prediction
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.agent.ingest import from_paths
from sawtooth.app.agent.server import mcp_server
from sawtooth.app.agent.skill import write_skill
from sawtooth.app.agent.tools import Tools
from sawtooth.app.api import routes
from sawtooth.app.api.mcp import mcp_routes
from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.settings import settings
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import ROOT
from tests.support.prepared import prepared

TOKEN = "a-long-token-of-mine"
TOOLS = {"list_runs", "report", "compare", "what_if", "query", "explain", "ingest"}
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = DataFolder(tmp_path_factory.mktemp("agent") / "data").create()
    places = {
        "starved": ROOT / "sample_traces" / "resnet_starved",
        "fixed": ROOT / "sample_traces" / "resnet_fixed",
        "reads": ROOT / "tests" / "recordings" / "gpt_reads",
    }
    for name, place in places.items():
        run = prepared(folder, place / "trace.json.gz", place / "nvml.jsonl")
        folder.write_manifest(msgspec.structs.replace(run, name=name))
    return folder


@pytest.fixture(scope="module")
def library(data: DataFolder) -> Iterator[Library]:
    with Library(data) as library:
        yield library


@pytest.fixture(scope="module")
def starved(data: DataFolder, library: Library) -> RunResult:
    return result_of(data.resolve_run("starved"), library)


@pytest.fixture
def ask(library: Library) -> Ask:
    """Call a tool; return its structured answer, or the sentence of its error."""
    tools = Tools(library)

    def ask(name: str, **arguments: Any) -> Any:
        async def call(client: Client) -> Any:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else result.structured_content

        return _with_client(tools, call)

    return ask


def _with_client(tools: Tools, use: Callable[[Client], Awaitable[Any]]) -> Any:
    async def session() -> Any:
        async with Client(mcp_server(tools, from_paths(tools)), raise_exceptions=True) as client:
            return await use(client)

    return asyncio.run(session())


def test_every_tool_is_described_typed_and_marked(library: Library) -> None:
    async def listed(client: Client) -> Any:
        return (await client.list_tools()).tools, (await client.list_resources()).resources

    tools, resources = _with_client(Tools(library), listed)
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        assert tool.description and tool.title and tool.output_schema["type"] == "object", tool.name
        assert tool.annotations.read_only_hint is (tool.name != "ingest")
        assert tool.annotations.open_world_hint is False
    assert [str(resource.uri) for resource in resources] == ["sawtooth://tables"]


def test_the_report_equals_that_of_the_page(ask: Ask, starved: RunResult) -> None:
    report = ask("report", run="starved")
    assert report["step"]["ms"] == starved.metrics["best_step_time_ms"].value
    assert report["step"]["low_ms"] < report["step"]["ms"] < report["step"]["high_ms"]
    assert report["lost"][0]["cause"] == "data_wait"
    assert {item["finding"] for item in report["findings"]} == {item["rule"] for item in report_json(starved)["findings"]}
    assert report["findings"][0]["finding"] == "data-loader-starves-gpu"
    runs = ask("list_runs", search="STAR")
    assert [(run["name"], run["step_ms"] is None or run["step_ms"] > 0) for run in runs["runs"]] == [("starved", True)]
    assert ask("list_runs")["total"] == 3


def test_a_finding_is_predicted_as_on_the_page(ask: Ask, starved: RunResult) -> None:
    finding = next(item for item in starved.findings if item.rule == "data-loader-starves-gpu")
    alone = ask("what_if", run="starved", findings=[finding.rule])
    assert (alone["after_ms"], alone["low_ms"], alone["high_ms"]) == pytest.approx(
        (finding.predicted_step_ms, finding.predicted_low_ms, finding.predicted_high_ms)
    )
    assert alone["gain_ms"] == pytest.approx(finding.gain_ms)


def test_several_findings_are_predicted_together(ask: Ask, data: DataFolder, library: Library) -> None:
    reads = result_of(data.resolve_run("reads"), library)
    several = [finding for finding in reads.findings if finding.edits]
    together = ask("what_if", run="reads", findings=[finding.rule for finding in reads.findings])
    right = combined_prediction(library, reads.lead, reads.gpus, several) if reads.lead is not None else None
    assert right is not None and together["after_ms"] == pytest.approx(right.after_ms)
    assert max(finding.gain_ms for finding in several) < together["gain_ms"] < sum(finding.gain_ms for finding in several)
    assert together["not_counted"] == ["memory-headroom"]  # This finding claims no gain.


def test_other_changes_are_replayed(ask: Ask, starved: RunResult) -> None:
    now = starved.metrics["best_step_time_ms"].value
    assert now is not None
    remaining = [
        ask("what_if", run="starved", lost_time=[{"cause": "data_wait", "keep_share": share}])["after_ms"]
        for share in (1.0, 0.5, 0.0)
    ]
    assert remaining[0] == pytest.approx(now) and remaining[0] > remaining[1] > remaining[2]
    fixed = ask("report", run="fixed")["step"]["ms"]  # The GPU limits this step, so slower kernels lengthen it.
    slower = ask("what_if", run="fixed", kernels=[{"name": "", "factor": 2.0}])
    assert "No GPU operation" in slower
    heaviest = ask(
        "query",
        run="fixed",
        sql="SELECT n.name FROM gpu_ops g JOIN names n USING (name_id) GROUP BY 1 ORDER BY sum(g.dur_ns) DESC LIMIT 1",
    )["rows"][0][0]
    assert ask("what_if", run="fixed", kernels=[{"name": heaviest, "factor": 2.0}])["after_ms"] > fixed


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Name at least one change"),
        ({"findings": ["no-such"]}, "no finding 'no-such'"),
        ({"lost_time": [{"cause": "comm_wait"}]}, "not a cause that a replay can remove"),
        ({"lost_time": [{"cause": "data_wait", "keep_share": 2}]}, "from 0 to 1"),
        ({"host_time_factor": -1}, "from 0 to 100"),
        ({"batch_factor": 2, "cuda_graph": True}, "predicted alone"),
    ],
)
def test_empty_changes_are_refused(ask: Ask, changes: dict[str, Any], sentence: str) -> None:
    assert sentence in ask("what_if", run="starved", **changes)


def test_a_comparison_gives_the_verdict_and_its_interval(ask: Ask) -> None:
    compared = ask("compare", before="starved", after="fixed")
    assert compared["verdict"] == "faster"
    low, high = compared["change_ci95_ms"]
    assert low < compared["change_ms"] < high < 0
    assert compared["change_ms"] == pytest.approx(compared["after_ms"] - compared["before_ms"])
    assert "data-loader-starves-gpu" in compared["findings_fixed"]


def test_a_query_reads_within_its_limits(ask: Ask) -> None:
    answer = ask("query", run="starved", sql="SELECT range AS n, NULL AS nothing FROM range(5)", limit=3)
    assert answer == {"columns": ["n", "nothing"], "rows": [[0, None], [1, None], [2, None]], "more": True}
    assert "Only statements that read" in ask("query", run="starved", sql="DROP TABLE gpu_ops")
    assert "does not exist" in ask("query", run="starved", sql="SELECT * FROM nothing_here").lower()
    assert "disabled" in ask("query", run="starved", sql="SELECT * FROM read_text('/etc/passwd')")
    assert "no trace of rank 7" in ask("query", run="starved", sql="SELECT 1", rank=7)


def test_a_finding_is_explained_with_its_code(ask: Ask) -> None:
    explained = ask("explain", run="starved", finding="data-loader-starves-gpu")
    assert explained["finding"]["number"] == 1
    assert any("num_workers" in change["after"] for change in explained["changes"])
    assert explained["evidence"] and "When it is wrong" in explained["about_the_rule"]
    assert "no finding 'x'" in ask("explain", run="starved", finding="x")


def test_errors_reach_the_model_as_sentences(ask: Ask) -> None:
    assert "There is no run 'nothing'" in ask("report", run="nothing")


def test_files_of_this_machine_become_a_run(tmp_path: Path) -> None:
    trace = tmp_path / "mine.json"
    matmul_loop(steps=6).write(trace)
    with Library(DataFolder(tmp_path / "data").create()) as library:

        async def bring(client: Client) -> Any:
            ingested = (await client.call_tool("ingest", {"paths": [str(trace)], "tags": ["baseline"]})).structured_content
            again = await client.call_tool("ingest", {"paths": [str(tmp_path / "none")]})
            return ingested, again.content[0].text

        ingested, refusal = _with_client(Tools(library), bring)
    assert [(run["name"], run["tags"], run["traces"]) for run in ingested["runs"]] == [("mine", ["baseline"], 1)]
    assert "does not exist" in refusal


@asynccontextmanager
async def _nothing_beside(_app: Any) -> AsyncIterator[None]:
    yield None


@pytest.fixture
def served(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Return the server's routes behind its own guard, as ``sawtooth serve --mcp`` has them."""
    monkeypatch.setenv("SAWTOOTH_MCP", "1")
    monkeypatch.setenv("SAWTOOTH_TOKEN", TOKEN)
    settings.cache_clear()
    for_agents, lifespan = mcp_routes(_nothing_beside)
    app = Starlette(
        routes=[*routes(), *for_agents], middleware=[Middleware(AccessMiddleware, settings=settings())], lifespan=lifespan
    )
    with TestClient(app, base_url="http://localhost:8501") as client:
        yield client


def _call(client: TestClient, tool: str, **arguments: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    answer = client.post("/mcp", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


def test_http_access_needs_a_token_and_uploads_become_runs(served: TestClient, tmp_path: Path) -> None:
    assert served.post("/mcp", json={}).status_code == 401
    other = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}
    assert served.post("/mcp", json={}, headers=other).status_code == 403

    trace = tmp_path / "mine.json"
    matmul_loop(steps=6).write(trace)
    refusal = _call(served, "ingest", uploads={str(trace): "mine.json"})
    assert refusal["isError"] and "32 hexadecimal digits" in refusal["content"][0]["text"]
    assert _call(served, "ingest", paths=[str(trace)])["isError"]

    sent = {"Authorization": f"Bearer {TOKEN}", "X-Sawtooth": "1"}
    upload = served.put("/api/v1/uploads?name=mine.json", content=trace.read_bytes(), headers=sent).json()["upload"]
    ingested = _call(served, "ingest", uploads={upload: "mine.json"}, name="over http", tags=["baseline"])["structuredContent"]
    assert [(run["name"], run["tags"]) for run in ingested["runs"]] == [("over http", ["baseline"])]
    assert _call(served, "report", run="over http")["structuredContent"]["id"] == ingested["runs"][0]["id"]


def test_without_the_option_there_is_no_route(app_data: DataFolder) -> None:
    assert mcp_routes(_nothing_beside)[0] == []


def test_the_skill_follows_the_format(tmp_path: Path) -> None:
    place = write_skill(tmp_path)
    text = (place / "SKILL.md").read_text()
    prove = (place / "references" / "prove.md").read_text()
    assert all(f"`{word}`" in text and f"`{word}`" in prove for word in get_args(Answer))
    head, body = text.split("---\n")[1:3]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == place.name == "sawtooth"
    assert 0 < len(fields["description"]) <= 1024 and len(fields["compatibility"]) <= 500
    assert len(body.splitlines()) < 500
    for reference in ("record", "read", "prove"):
        assert f"references/{reference}.md" in body and (place / "references" / f"{reference}.md").is_file()
    assert all(f"`{tool}`" in text for tool in TOOLS - {"list_runs", "query"})
