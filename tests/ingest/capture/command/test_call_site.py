"""From where a step is called: one place for all epochs of a loop, another for another loop's line."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sawtooth.ingest.capture.command import call_site
from sawtooth.ingest.capture.command.call_site import MOST_SITES, CallSite, CallSites

HERE = Path(__file__).name


def step(here: Callable[[], CallSite]) -> CallSite:
    return here()


def epoch(sites: CallSites) -> set[CallSite]:
    return {step(sites.here) for _ in range(3)}


def test_a_loop_over_epochs_is_one_place_and_another_line_is_another() -> None:
    sites = CallSites()
    (first,) = {site for _ in range(4) for site in epoch(sites)}
    (other,) = epoch(sites)
    assert (first.number, other.number) == (0, 1)
    unlike = [line for line in other.lines if line not in first.lines]
    assert len(unlike) == 1 and unlike[0].startswith(f"{HERE}:"), "the line in this test, not the one in step"
    assert first.lines[0] == other.lines[0]


def names(site: CallSite) -> list[str]:
    return [line.partition(":")[0] for line in site.lines]


def below(file: str, here: Callable[[], CallSite]) -> CallSite:
    """Return the place as called through a function of ``file``."""
    made: dict[str, Callable[[Callable[[], CallSite]], CallSite]] = {}
    exec(compile("def call(here): return here()", file, "exec"), made)
    return made["call"](here)


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
def test_packages_pytorch_and_console_scripts_are_no_lines_of_the_user(
    monkeypatch: pytest.MonkeyPatch, file: str, own: bool
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/home/ann/pytorch/torch/__init__.py"))
    lines = names(below(file, CallSites().here))
    assert (Path(file).name in lines) == own
    assert set(lines) - {"<string>"} == {HERE, *(["train.py"] if own else [])}, (
        "where pytest is started is no line of this test"
    )


def test_a_program_of_packages_alone_has_their_lines_but_pytorch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/env/site-packages/torch/__init__.py"))
    places = []

    def train() -> None:
        places.append(below("/env/site-packages/torch/optim/sgd.py", CallSites().here))

    monkeypatch.setattr(call_site, "INSTALLED", ("/",))
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert names(places[0]) == [HERE, HERE], "neither sgd.py nor threading.py"


def test_a_stack_that_is_another_at_each_step_fills_no_memory() -> None:
    sites = CallSites()
    made: dict[str, Callable[[], CallSite]] = {}
    for number in range(MOST_SITES + 5):
        exec(f"def f{number}(): return here()", {"here": sites.here}, made)
    assert {call().number for call in made.values()} == set(range(MOST_SITES + 1)), (
        "all beyond the most are one place, and none of the others"
    )
