"""From where a step is called: one place for all epochs of a loop, another for another loop's line."""

from collections.abc import Callable
from pathlib import Path

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


def test_packages_and_the_standard_library_are_no_lines_of_the_user() -> None:
    lines = step(CallSites().here).lines
    assert all(line.startswith(HERE) for line in lines[:1]) and not any("pytest" in line for line in lines)


def test_a_stack_that_is_another_at_each_step_fills_no_memory() -> None:
    sites = CallSites()
    made: dict[str, Callable[[], CallSite]] = {}
    for number in range(MOST_SITES + 5):
        exec(f"def f{number}(): return here()", {"here": sites.here}, made)
    assert {call().number for call in made.values()} == set(range(MOST_SITES))
