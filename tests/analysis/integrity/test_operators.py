"""Test that operators removed from a trace are noticed by their numbers."""

from __future__ import annotations

from sawtooth.app.words.headline import headline
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import matmul_loop


def test_inconsistent_sequence_numbers_withhold_the_answer() -> None:
    trace = matmul_loop(70)
    numbered = (event for event in trace.events if event["cat"] in ("cpu_op", "user_annotation"))
    for number, event in enumerate(numbered):
        event.setdefault("args", {})["External id"] = 1 + 3 * number
    result = analysed([("t.json", trace.json())])
    assert result is not None and [check.key for check in result.failed] == ["operators_missing"]
    assert headline(result).startswith("Operators are missing from the trace")
    assert not any(finding.explains.causes for finding in result.findings)
    assert {key: result.metrics[key].bound for key in ("flops_per_step", "achieved_tflops", "mfu")} == dict.fromkeys(
        ("flops_per_step", "achieved_tflops", "mfu"), "least"
    )
