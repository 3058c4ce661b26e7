"""Tests of waits, copies and communication as idle causes, one hand-made trace each.

The arithmetic is in a comment of each test.
"""

from __future__ import annotations

from sawtooth.analysis.derive.lost.schedule import totals
from tests.support.lost_time import analyse, causes
from tests.support.tiny_trace import TinyTrace


def test_host_sync_is_at_most_as_long_as_the_wait() -> None:
    trace = TinyTrace()
    trace.step(0, 500)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 80, 110)  # waits from 80 to 107: W = 27 µs
    trace.launch((190, 195), (197, 200))
    # Gap [107, 197) = 90 µs of host work. The wait explains 27 of them, because without it the host would have been 27 µs earlier.
    # Host [105, 195): sync call [105, 110) and launch [190, 195) are launch_bound 10, python 80. The first 27 µs go to the wait:
    # 5 of the call and 22 of python.
    assert causes(trace) == {"host_sync": 27, "python_host": 58, "launch_bound": 5}
    _, _, table = analyse(trace)
    row = table[table["cause"] == "host_sync"].iloc[0]
    assert "waited 27 µs" in row["evidence"]
    assert row["call_id"] == 1


def test_sync_with_an_idle_gpu_is_not_a_cause() -> None:
    trace = TinyTrace()
    trace.step(0, 500)
    trace.launch((0, 5), (7, 20))
    trace.call("cudaStreamSynchronize", 50, 56)
    trace.launch((60, 65), (67, 70))
    # Gap [20, 67), host [18, 65): python 32 + 4, calls 6 + 5.
    assert causes(trace) == {"python_host": 36, "launch_bound": 11}


def test_unused_waiting_explains_later_gaps_too() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 7, 110)  # W = 100 µs
    trace.launch((120, 125), (127, 130))  # gap [107, 127) 20
    trace.launch((150, 155), (157, 160))  # gap [130, 157) 27
    trace.launch((300, 305), (307, 310))  # gap [160, 307) 147: 100 − 47 = 53 of it; the host worked for the rest
    found = causes(trace)
    assert found["host_sync"] == 100
    assert found["python_host"] + found["launch_bound"] == 94  # 147 − 53


def test_wait_before_the_window_is_not_a_cause() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 7, 110)  # W = 100 µs, of which [107, 207) uses up all
    trace.launch((200, 205), (207, 307))
    trace.call("cudaStreamSynchronize", 290, 310)  # W = 17 µs
    trace.launch((340, 345), (347, 400))
    # The window begins when the second kernel ends, at 307: its wait ended there too and counts. Gap [307, 347) = 40 = 17 + 23.
    assert causes(trace, (307, 400))["host_sync"] == 17
    # In a window from 207 as well; the first wait's 100 µs belong to the time before it.
    assert causes(trace, (207, 400))["host_sync"] == 17
    assert causes(trace)["host_sync"] == 117


def test_blocking_copy_from_pageable_memory() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("aten::copy_", 30, 140)
    trace.copy((40, 130), (60, 128), "Memcpy HtoD (Pageable -> Device)")
    trace.launch((200, 205), (207, 210))
    lost, found, _ = analyse(trace)
    sums = totals(found, lost)
    assert sums["exposed_memcpy", "blocking_copy"] == 68_000  # 128 − 60
    # Gap [20, 60): the copy call began at 40 and its copy at 60, so the host spent [20, 60): python [20, 30), copy_ [30, 40), the call [40, 60).
    # Gap [128, 207): 68 µs after the copy count for the wait for it. The rest is Python and the launch.
    assert sums["idle", "blocking_copy"] >= 68_000
    assert sum(sums.values()) == (60 - 20 + 68 + 207 - 128) * 1000


def test_location_of_a_copy_is_its_launch() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("aten::to", 10, 30)
    trace.copy((12, 16), (60, 200), "Memcpy HtoD (Pinned -> Device)")
    trace.op("aten::bmm", 100, 170)  # Launched early, so it is queued after the copy.
    trace.launch((110, 115), (202, 210))
    _, _, table = analyse(trace)
    copied = table[table["owner"] == "exposed_memcpy"]
    ops = trace.events().ops
    assert [trace.events().names[ops.name[op]] for op in copied["cpu_op_id"]] == ["aten::to"]
    assert "(aten::to)" in copied["evidence"].iloc[0]


def test_a_wait_for_communication_on_another_stream() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 4), (10, 110), name="ncclDevKernel_AllReduce", stream=20)
    trace.launch((5, 9), (113, 120))  # Queued at 9, stream 7 free: starts 3 µs after the other stream's 110.
    lost, found, _ = analyse(trace)
    assert totals(found, lost) == {("exposed_comm", "unattributed"): 100_000, ("idle", "comm_wait"): 3_000}


def test_communication_is_split_at_the_start_of_the_shortest_rank() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 4), (10, 110), name="ncclDevKernel_AllReduce", stream=20)
    lost, found, _ = analyse(trace, transfer_ns={0: 30_000})
    assert totals(found, lost) == {("exposed_comm", "comm_wait"): 70_000, ("exposed_comm", "comm_transfer"): 30_000}
