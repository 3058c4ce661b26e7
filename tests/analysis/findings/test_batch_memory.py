"""Tests of the memory of another batch size, by hand."""

from __future__ import annotations

import json
from itertools import accumulate

import pandas as pd

from sawtooth.analysis.findings.batch.memory import memory_at

MB = 1_000_000


class Recorded:
    """One step of 100 ns on a GPU that already holds 100 MB.

    A block is (start, end, bytes, in the backward pass). The optimizer's step runs from 80 to 95 ns.
    """

    def __init__(self, *blocks, gradients=(), operators=(), optimizer=((80, 95),)):
        self.blocks, self.gradients, self.operators, self.optimizer = blocks, gradients, operators, optimizer

    def frame(self, sql, parameters=()):
        if "AS total" in sql:
            events = sorted(
                (at, sign * size) for start, end, size, _ in self.blocks for at, sign in ((start, 1), (end, -1)) if at < 1000
            )
            totals = accumulate((size for _, size in events), initial=100 * MB)
            return pd.DataFrame(zip([at for at, _ in events], list(totals)[1:], strict=True), columns=["time_ns", "total"])
        if "FROM allocations" in sql:
            rows = [(start, size, int(backward), end) for start, end, size, backward in self.blocks]
            return pd.DataFrame(rows, columns=["start_ns", "bytes", "thread_id", "end_ns"])
        spans = ["thread_id", "start_ns", "end_ns"]
        if "regexp_matches" in sql:
            steps = [(0, *span) for span in self.optimizer] if "Optimizer" in parameters[0] else [(1, 40, 70)]
            return pd.DataFrame(steps, columns=spans)
        rows = [(0, start, end, place, name) for place, (start, end, _, name) in enumerate(self.operators)]
        return pd.DataFrame(rows, columns=[*spans, "signature_id", "name"])

    def rows(self, sql, parameters=()):
        if "FROM steps" in sql:
            return [(0, 100)] if "counted" in sql else [(100,)]
        if "FROM collectives" in sql:
            return []
        if "FROM signatures" in sql:
            return [
                (place, json.dumps(dims), json.dumps(["float"] * len(dims)))
                for place, (_, _, dims, _) in enumerate(self.operators)
            ]
        if "count(DISTINCT" in sql:
            return [(json.dumps([shape]), 1) for _, shape in self.gradients]
        return [(at, json.dumps([shape]), json.dumps(["float"])) for at, shape in self.gradients]


FORWARD, BACKWARD, NEVER = False, True, 2000
GRADIENT = [10, MB]  # 40 MB


def test_activations_grow_and_earlier_memory_does_not():
    recording = Recorded((10, 60, 60 * MB, FORWARD), (50, 55, 40 * MB, BACKWARD))
    assert memory_at(recording, 0, [1, 4]) == [200 * MB, 500 * MB]  # 100 + 4 × (60 + 40), a gradient of activations


def test_memory_of_gradients_does_not_grow():
    """One gradient lives after the pass, into the next step.

    One is accumulated and freed at once, as under DDP.
    """
    alive = Recorded((10, 60, 60 * MB, FORWARD), (50, NEVER, 40 * MB, BACKWARD))
    assert memory_at(alive, 0, [4]) == [380 * MB]  # 100 + 40 + 4 × 60
    freed = Recorded((10, 60, 60 * MB, FORWARD), (50, 58, 40 * MB, BACKWARD), gradients=[(55, GRADIENT)])
    assert memory_at(freed, 0, [4]) == [380 * MB]
    without = Recorded((10, 60, 60 * MB, FORWARD), (50, NEVER, 40 * MB, BACKWARD), optimizer=())
    assert memory_at(without, 0, [4]) == [380 * MB]  # Live for the whole step, because no optimizer is marked.


def test_optimizer_memory_does_not_grow_and_memory_of_the_loop_does():
    recording = Recorded((10, 90, 20 * MB, FORWARD), (85, 90, 300 * MB, FORWARD))  # A variable still holds the logits.
    assert memory_at(recording, 0, [4, 16, 0.5]) == [480 * MB, 720 * MB, 410 * MB]


def test_memory_for_copies_of_parameters_does_not_grow():
    # The copies are Autocast's copy of a parameter, and the part of an operator's scratch that is as large as its parameters.
    # An operator's output grows with the batch.
    cast = Recorded((10, 60, 20 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=[(9, 11, [GRADIENT], "aten::_to_copy")])
    assert memory_at(cast, 0, [3]) == [120 * MB]
    layers = [(9, 20, [[8, 10], [GRADIENT]], "aten::convolution")]  # A list of parameters, as in a recurrent network.
    scratch = Recorded((10, 15, 100 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=layers)
    assert memory_at(scratch, 0, [3]) == [320 * MB]  # 100 + 40 + 3 × 60
    returned = Recorded((10, 60, 100 * MB, FORWARD), gradients=[(99, GRADIENT)], operators=layers)
    assert memory_at(returned, 0, [3]) == [400 * MB]


def test_scratch_memory_of_a_recurrent_layer_has_a_fixed_part():
    """For two layers that is 40 MB for the parameters and 2 × 8 MiB.

    Blocks smaller than its scratch grow with the batch, such as a gradient of 50 MB that was made contiguous.
    """
    passes = [(9, 20, [[4, 128, 10], [GRADIENT], [], [10 * MB], [2, 4, 10]], "aten::_cudnn_rnn_backward")]
    blocks = (10, 15, 60 * MB, FORWARD), (11, 14, 50 * MB, FORWARD)
    fixed = 100 * MB + 40 * MB + (16 << 20)
    recording = Recorded(*blocks, gradients=[(99, GRADIENT)], operators=passes)
    assert memory_at(recording, 0, [1, 3]) == [210 * MB, fixed + 3 * (210 * MB - fixed)]


def test_a_trace_without_allocations_predicts_no_memory():
    assert memory_at(Recorded(), 0, [2]) is None
