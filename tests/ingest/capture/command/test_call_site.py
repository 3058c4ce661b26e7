"""Tests of the call site of a step, which is one for all epochs of a loop."""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest.capture.command import call_site
from sawtooth.ingest.capture.command.call_site import MAX_SITES, CallSite, CallSites

THIS_FILE = Path(__file__).name


def step(here: Callable[[], CallSite]) -> CallSite:
    return here()


def epoch(sites: CallSites) -> set[CallSite]:
    return {step(sites.current) for _ in range(3)}


def test_a_loop_over_epochs_is_one_place_and_another_line_is_another() -> None:
    sites = CallSites()
    (first,) = {site for _ in range(4) for site in epoch(sites)}
    (other,) = epoch(sites)
    assert (first.number, other.number) == (0, 1)
    unlike = [line for line in other.lines if line not in first.lines]
    assert len(unlike) == 1 and unlike[0].startswith(f"{THIS_FILE}:"), "only the line in this test differs"
    assert first.lines[0] == other.lines[0]


def names(site: CallSite) -> list[str]:
    return [line.partition(":")[0] for line in site.lines]


def call_through(file: str, here: Callable[[], CallSite]) -> CallSite:
    """Return the call site of a call through a function in ``file``."""
    namespace: dict[str, Callable[[Callable[[], CallSite]], CallSite]] = {}
    exec(compile("def call(here): return here()", file, "exec"), namespace)
    return namespace["call"](here)


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/ann/torch/train.py", True),
        ("/home/ann/my-site-packages/train.py", True),
        (f"{os.path.dirname(os.__file__)}-of-mine/train.py", True),  # noqa: PTH120
        ("/home/ann/env/lib/python3.11/site-packages/litgpt/train.py", False),
        (f"{os.path.dirname(sys.executable)}/train.py", False),  # noqa: PTH120 - a console script
        (os.__file__, False),
        ("/home/ann/pytorch/torch/optim/train.py", False),
    ],
)
def test_packages_pytorch_and_console_scripts_are_not_user_lines(monkeypatch: pytest.MonkeyPatch, file: str, own: bool) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/home/ann/pytorch/torch/__init__.py"))
    lines = names(call_through(file, CallSites().current))
    assert (Path(file).name in lines) == own
    assert set(lines) - {"<string>"} == {THIS_FILE, *(["train.py"] if own else [])}, (
        "the lines that start pytest are not user lines"
    )


def test_a_program_without_user_code_has_lines_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/env/site-packages/torch/__init__.py"))
    places = []

    def train() -> None:
        places.append(call_through("/env/site-packages/torch/optim/sgd.py", CallSites().current))

    monkeypatch.setattr(call_site, "INSTALLED", ("/",))
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert names(places[0]) == [THIS_FILE, THIS_FILE], "neither sgd.py nor threading.py"


def test_changing_stacks_do_not_fill_the_memory() -> None:
    sites = CallSites()
    namespace: dict[str, Callable[[], CallSite]] = {}
    for number in range(MAX_SITES + 5):
        exec(f"def f{number}(): return here()", {"here": sites.current}, namespace)
    assert {call().number for call in namespace.values()} == set(range(MAX_SITES + 1)), (
        "all call sites beyond the limit have one common number"
    )


def whole_stack() -> tuple[tuple[int, int], ...]:
    """Return the lines of this file on the stack, innermost first."""
    frame, lines = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            lines.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(lines)


class Program:
    """Nested loops that step at random.

    ``steps`` has the number of the call site and the true stack of each step.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.sites = random.Random(seed), CallSites()
        self.steps: list[tuple[int, tuple[tuple[int, int], ...]]] = []

    def step(self, optimizer: int = 0) -> None:
        self.steps.append((self.sites.current(optimizer).number, whole_stack()))

    def step_on_one_of_two_lines(self) -> None:
        if self.random.random() < 0.2:
            self.step()
        else:
            self.step(self.random.randrange(2))

    def loop(self, depth: int) -> None:
        for _ in range(self.random.randrange(1, 6)):
            if depth and self.random.random() < 0.4:
                self.loop(depth - 1)
            if self.random.random() < 0.5:
                self.step()
            self.step_on_one_of_two_lines()
            self.step()

    def step_and_yield(self) -> Iterator[None]:
        while True:
            self.step()
            self.step_on_one_of_two_lines()
            yield

    def run(self) -> None:
        generator = self.step_and_yield()
        for _ in range(40):
            next(generator)
            self.random.choice([self.loop, self.loop, lambda _: next(generator)])(2)


@pytest.mark.parametrize("seed", range(4))
def test_a_call_site_is_the_complete_stack(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_site, "MAX_SITES", 10_000)
    program = Program(seed)
    program.run()
    assert len(program.steps) > 200
    assert len(set(program.steps)) == len({number for number, _ in program.steps}) == len({stack for _, stack in program.steps})


def test_steps_of_a_loop_inspect_only_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    sites, walks = CallSites(), []
    monkeypatch.setattr(CallSites, "_walk", count_calls(CallSites._walk, walks))

    def loop(outside: int) -> None:
        if outside:
            loop(outside - 1)
        else:
            for _ in range(50):
                step(sites.current)

    for epoch in (1, 2):
        loop(30)
        assert len(walks) == 2 * epoch, "only the first two steps of each epoch inspect the whole stack"


def count_calls(function: Callable[..., CallSite], calls: list[None]) -> Callable[..., CallSite]:
    return lambda *arguments: (calls.append(None), function(*arguments))[1]


def test_a_debugger_keeps_its_trace_functions() -> None:
    sites, lines = CallSites(), []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        lines.append((frame.f_code.co_name, event))
        return trace

    def traced() -> None:
        sys._getframe().f_trace = trace
        for _ in range(3):
            step(sites.current)
        assert sys._getframe().f_trace is trace

    def entered_later() -> None:
        for _ in range(3):
            step(sites.current)
        before = sys.gettrace()
        sys.settrace(trace)
        step(sites.current)
        sys.settrace(before)

    traced()
    entered_later()
    assert ("step", "line") in lines and ("step", "return") in lines


@pytest.mark.parametrize(
    ("module", "trainer"),
    [
        ("transformers.trainer", "Transformers"),
        ("pytorch_lightning.loops.fit_loop", "Lightning"),
        ("lightning.pytorch.loops.fit_loop", "Lightning"),
        ("lightning.fabric.wrappers", ""),  # With Fabric, the user writes the loop.
        ("transformers.optimization", ""),
    ],
)
def test_the_library_that_owns_the_loop_is_known(module: str, trainer: str) -> None:
    namespace: dict[str, object] = {"__name__": module}
    exec(compile("def call(here): return here()", f"/env/lib/site-packages/{module}.py", "exec"), namespace)
    call = namespace["call"]
    assert callable(call)
    site = call(CallSites().current)
    assert site.trainer == trainer and site.lines[0].startswith(f"{THIS_FILE}:"), "the lines are those of the user"
