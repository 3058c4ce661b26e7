"""Tests of the table of causes: each row is complete and in an order that the host's rules can use.

A new cause needs only its row.
"""

import string
import subprocess
import sys

import pytest

from sawtooth.analysis.derive.lost.phase_lookup import PHASES
from sawtooth.analysis.knowledge import causes
from sawtooth.analysis.knowledge.causes import CAUSES, Cause
from sawtooth.analysis.knowledge.host_names import COMPUTING
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from tests.support.paths import ROOT

FIELDS = {"kernel", "call", "doing", "where", "took", "lead", "waited"}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.key)
def test_every_row_has_the_required_fields(cause: Cause) -> None:
    assert all((cause.label, cause.colour, cause.loses_to))
    assert cause.proof.endswith(".") and cause.to_do.endswith(".")
    assert (cause.waits_for is None) == (cause.changed_by == "nobody"), "what nobody can change is not what a sentence ends on"
    assert (cause.late_rank is None) == (cause.across_ranks is not None), "other ranks' doing is never why a rank is late"
    assert cause.evidence and set(cause.evidence) <= set(LOST_OWNERS)
    for sentence in cause.evidence.values():
        assert sentence.endswith(".")
        assert {field for _, field, _, _ in string.Formatter().parse(sentence) if field} <= FIELDS
    assert cause.phase is None or cause.phase in PHASES


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.key)
def test_each_cause_is_removed_from_a_replay_by_its_kind(cause: Cause) -> None:
    if "host_time" in cause.removal or "call_time" in cause.removal:
        assert cause.on_host is not None
    # The profiler's cost is removed before the replay. Communication and unexplained time stay as recorded.
    assert bool(cause.removal) == (cause.key not in ("profiler", "comm_wait", "comm_transfer", "unattributed"))


def test_host_causes_come_first_and_the_last_gets_the_remaining_time() -> None:
    assert causes.CAUSE_KEYS[: len(causes.HOST_CAUSES)] == causes.HOST_CAUSES, "a code of the paint is a code of a piece"
    assert causes.HOST_CAUSES[-3:] == ("host_compute", "launch_bound", "python_host")
    assert causes.WAIT_CAUSES == ("allocator", "blocking_copy", "host_sync")
    assert len(causes.CAUSE_OF) == len(CAUSES)


@pytest.mark.parametrize(
    ("operator", "computes"),
    [
        ("aten::stack", True),
        ("aten::sort", True),
        ("aten::sparse_mask", True),
        ("aten::_unsafe_view", False),
        ("aten::sparse_coo_tensor", False),
        ("aten::_sparse_coo_tensor_with_dims_and_tensors", False),
        ("aten::_indices", False),
        ("aten::values", False),
        ("aten::_nnz", False),
        ("aten::is_coalesced", False),
        ("aten::_coalesce", True),
    ],
)
def test_operators_that_compute(operator: str, computes: bool) -> None:
    assert bool(COMPUTING.search(operator)) == computes


ONE_ROW_MORE = '''
import sys, types
from pathlib import Path

ROW = """    Cause(
        key="logging", label="logging", proof="The queue is empty and the host writes a log.", changed_by="your code", to_do="Log less.",
        colour="umber", loses_to="writing logs", late_rank="its logs", waits_for="It waits for logs.",
        evidence={"idle": "The host wrote a log{where} for {took}."},
        on_host=HostSigns(python=re.compile("logger")), removal=("host_time",),
    ),
"""
name, path = "sawtooth.analysis.knowledge.causes", Path("analysis/knowledge/causes.py")
before, at, after = path.read_text(encoding="utf-8").partition("    Cause(\\n        key=\\"launch_bound\\"")
module = sys.modules[name] = types.ModuleType(name)
exec(compile(before + ROW + at + after, str(path), "exec"), module.__dict__)

from sawtooth.analysis.replay.edits import WithoutHostCause, apply
from sawtooth.analysis.replay.simulation import replay
from sawtooth.analysis.derive.unprofiled.cost import without_cause
from sawtooth.app.theme import PALETTE, colour_of
from sawtooth.app.words import causes as words
from tests.support.lost_time import analyse
from tests.support.replay_traces import problem_of
from tests.support.tiny_trace import TinyTrace

trace = TinyTrace()
trace.step(0, 100)
trace.launch((0, 5), (7, 20))
trace.python_call("train.py(3): logger", 20, 60)
trace.launch((70, 75), (77, 90))  # launched 2 us before it starts: of the gap from 20 to 77 the host's time is 18 to 75
_, _, gaps = analyse(trace)
row = gaps[gaps["cause"] == "logging"].iloc[0]
assert row["end"] - row["start"] == 40_000, gaps
assert row["evidence"] == "The host wrote a log at train.py(3): logger for 40 \\u00b5s.", row["evidence"]
assert colour_of("idle", "logging").label == "logging" and colour_of("idle", "logging").light == PALETTE["umber"][0]
assert words.loses_to("idle", "logging") == "writing logs" and words.waits_for("logging") == "It waits for logs."
problem = problem_of(trace)
for changed in (without_cause(problem, "logging"), apply(problem, [WithoutHostCause("logging")])):
    assert replay(problem).op_end.max() - replay(changed).op_end.max() == 40_000
'''


def test_a_new_cause_needs_only_a_row() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", ONE_ROW_MORE], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
