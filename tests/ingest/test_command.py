"""Tests of a training's command line, which has a program, arguments and a run's name.

The notes of older runs also contain the command.
"""

from __future__ import annotations

import pytest

from sawtooth.ingest.loop.command import (
    POSITIONAL,
    RECORDED_BY,
    arguments_of,
    command_of,
    default_run_name,
    names_secret,
    program_of,
)

RUNS = (
    ("python train.py --epochs 3", "train.py", "train", {"--epochs": "3"}),
    ("train.py --lr=0.1 --amp -v", "train.py", "train", {"--lr": "0.1", "--amp": "", "-v": ""}),
    ("python -m vision.train --sizes 1 2 -3", "vision.train", "vision.train", {"--sizes": "1 2 -3"}),
    ("-m rl.train data", "rl.train", "rl.train", {POSITIONAL: "data"}),
    ("python -m rl.train --config base.py", "rl.train", "rl.train", {"--config": "base.py"}),
    ("torchrun --nproc_per_node 2 scripts/finetune.py model.depth=3 fast", "finetune.py", "finetune",
     {"--nproc_per_node": "2", "model.depth": "3", POSITIONAL: "fast"}),
    ("python -m torch.distributed.run --nproc_per_node 2 -m rl.train -x", "rl.train", "rl.train", {"-m": "torch.distributed.run", "--nproc_per_node": "2", "-x": ""}),
    ("./train", "train", "train", {}),
)  # fmt: skip


@pytest.mark.parametrize(("line", "program", "name", "arguments"), RUNS)
def test_program_name_and_arguments(line: str, program: str, name: str, arguments: dict[str, str]) -> None:
    command = line.split()
    assert (program_of(command), default_run_name(command), arguments_of(command)) == (program, name, arguments)


def test_older_runs_have_their_command_in_the_notes() -> None:
    notes = "Recorded by `sawtooth run python -m rl.train --steps 300`.\nNo profile: the loop ended."
    assert command_of([], notes) == ["python", "-m", "rl.train", "--steps", "300"]
    assert command_of(["train.py"], notes) == ["train.py"]
    hostile = ["train.py", "a\nrm -rf ~", "\u202egnp.exe", "\x1b]0;t\x07", "zero\u200bwidth", "\u2028", "fine é"]
    shown = ["train.py", "a\\nrm -rf ~", "\\u202egnp.exe", "\\x1b]0;t\\x07", "zero\\u200bwidth", "\\u2028", "fine é"]
    assert command_of(hostile, "") == shown
    assert command_of([], f"{RECORDED_BY} train.py --name \u202ex`.") == ["train.py", "--name", "\\u202ex"]
    assert command_of([], "a note of mine") == [] == command_of([], "")
    assert program_of([]) == ""


@pytest.mark.parametrize(
    ("flag", "secret"), [("--api-key", True), ("--hf_token", True), ("--tokens", False), ("--tokenizer", False)]
)
def test_a_flag_that_names_a_secret(flag: str, secret: bool) -> None:
    assert names_secret(flag) is secret
