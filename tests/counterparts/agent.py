"""Print what Sawtooth's MCP tools say about five recordings with a known problem, and a refusal.

    python -m tests.counterparts.agent

The SDK's client starts ``sawtooth mcp``. It ingests each recording under a number, because the names contain the answers. It
calls ``report``, then ``explain`` and ``what_if`` for the report's first finding, as the skill tells an agent to. The table
has the known problem, the tools' own words, and the step time that was measured after the fix, without the profiler. The
refusal is about a sixth recording.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.support.paths import RECORDINGS, ROOT

# One recording for each kind of problem, and a word of the change that a right answer must propose.
TASKS = {
    "loader_inline": "num_workers",
    "copy_pageable": "pin_memory",
    "attention_math": "scaled_dot_product_attention",
    "collected_garbage": "gc.",
    "mlp_eager": "graph",
}
NOT_PREDICTED = "loader_restarts"  # The gain is not predicted, because the trace cannot show it.
HEAD = "| planted | first finding | change | step now, ms | predicted, ms | measured after, ms |\n|---|---|---|--:|---|--:|"


@dataclass(frozen=True)
class Answer:
    """The tools' answers about one recording, and the truth that they did not see."""

    planted: str
    measured_after_ms: float
    report: dict[str, Any]
    explained: dict[str, Any]
    predicted: dict[str, Any] | str  # If the prediction is refused, the sentence of the refusal.

    @property
    def first(self) -> dict[str, Any]:
        finding: dict[str, Any] = self.report["findings"][0]
        return finding

    @property
    def proposed(self) -> str:
        """Return all words of the change that ``explain`` proposes."""
        return json.dumps([self.explained["how"], self.explained["changes"], self.first["action"]])

    @property
    def row(self) -> str:
        predicted = self.predicted
        if not isinstance(predicted, str):
            predicted = f"{predicted['after_ms']:.1f} ({predicted['low_ms']:.1f} to {predicted['high_ms']:.1f})"
        return (
            f"| {self.planted} | {self.first['title']} | {self.first['action']} "
            f"| {self.report['step']['ms']:.1f} | {predicted} | {self.measured_after_ms:.1f} |"
        )


async def _ask(client: Client, tool: str, /, **arguments: Any) -> Any:
    """Return a tool's structured answer, or the sentence of its refusal."""
    result = await client.call_tool(tool, arguments)
    return result.content[0].text if result.is_error else result.structured_content  # type: ignore[union-attr]


async def _work(client: Client, names: Sequence[str]) -> list[Answer]:
    answers = []
    for number, name in enumerate(names, 1):
        files = [str(path) for path in sorted((RECORDINGS / name).iterdir()) if path.name != "truth.json"]
        ingested = await _ask(client, "ingest", paths=files, name=f"run {number}")
        run = ingested["runs"][0]["id"]
        report = await _ask(client, "report", run=run)
        first = report["findings"][0]["finding"]
        explained = await _ask(client, "explain", run=run, finding=first)
        predicted = await _ask(client, "what_if", run=run, findings=[first])
        truth = json.loads((RECORDINGS / name / "truth.json").read_text())
        fixed = json.loads((RECORDINGS / truth["fixed_by"][0]["recording"] / "truth.json").read_text())
        answers.append(Answer(truth["planted"], 1000 * fixed["step_s_pipelined"], report, explained, predicted))
    return answers


def answers(names: Sequence[str] = tuple(TASKS)) -> list[Answer]:
    """Start ``sawtooth mcp`` on an empty data folder and return what it says about each recording."""

    async def session(data: str) -> list[Answer]:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "sawtooth", "mcp", "--data", data], cwd=str(ROOT), env={"PYTHONPATH": str(ROOT)}
        )
        async with Client(server) as client:
            return await _work(client, names)

    with tempfile.TemporaryDirectory() as scratch:
        return asyncio.run(session(str(Path(scratch) / "data")))


if __name__ == "__main__":
    print(HEAD)
    for answer in answers((*TASKS, NOT_PREDICTED)):
        print(answer.row)
