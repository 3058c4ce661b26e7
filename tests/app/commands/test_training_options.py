"""Tests that options of a training's command are passed on, even if one of ours begins like them."""

from __future__ import annotations

import pytest

from tests.support.command_reference import PARSERS

WORDS = ["train.py", "--n", "640", "--s", "2", "--no", "--st=3", "--m", "-n", "4", "-model", "x", "--steps", "9", "--name", "y"]


@pytest.mark.parametrize("command", ["run", "try", "sample"])
@pytest.mark.parametrize("before", [[], ["--"]], ids=["", "after two dashes"])
def test_options_of_the_training_are_passed_on(command: str, before: list[str]) -> None:
    read = PARSERS[command]().parse_args([*before, *WORDS])
    assert [word for word in read.command if word != "--"] == WORDS
    assert not getattr(read, "module", None) and getattr(read, "name", "") == ""
