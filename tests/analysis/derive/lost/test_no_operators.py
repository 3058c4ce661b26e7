"""Tests that idle time between calls is Python's only if the trace has operators."""

from __future__ import annotations

import pytest

from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace


@pytest.mark.parametrize("operators", [True, False])
def test_python_is_a_cause_only_if_operators_were_recorded(operators: bool) -> None:
    trace = ChromeTrace()
    for k in range(20):
        if operators:
            trace.op("aten::add", 1000 * k, 1000 * k + 20, [[64, 64]], ["float"])
        trace.launch((1000 * k + 5, 1000 * k + 10), (1000 * k + 15, 1000 * k + 100), "k")
    result = analysed([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    causes = {row.cause for row in result.lead.ledger if row.owner == "idle"}
    assert ("python_host" in causes) == operators
    assert operators or "unattributed" in causes
