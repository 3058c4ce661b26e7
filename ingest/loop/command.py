"""A training's command line, as `sawtooth run` was given it: its program, its arguments, and what runs of it are called."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

RECORDED_BY = "Recorded by `sawtooth run"  # how the notes of a run begin; before the command was a fact, they alone had it
ENDED_WITH = "The training ended with exit code"  # how the line of the notes begins that says so
LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)  # modules that start the program
PYTHON = re.compile(r"python[\d.]*")
MODULE = re.compile(r"[^\W\d]\w*(\.\w+)*")
FLAG = re.compile(r"--?[A-Za-z]")  # -1 and -.5 are values
CONFIGURED = re.compile(r"\+{0,2}[A-Za-z_][\w.@/]*=")  # Hydra and OmegaConf: model.depth=3
SECRET = re.compile(r"(?:key|secret|password|passwd|credentials?|token)$", re.IGNORECASE)
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # Unicode's categories
POSITIONAL = "arguments without a name"


def command_of(command: Sequence[str], notes: str) -> list[str]:
    """Return the command that `sawtooth run` was given, from ``notes`` where the run was recorded before it was a fact; [] for other runs."""
    if not command and notes.startswith(RECORDED_BY):
        command = notes.splitlines()[0].removeprefix(RECORDED_BY).rstrip(".").removesuffix("`").split()
    return [visible(word) for word in command]


def visible(word: str) -> str:
    """Return ``word`` with escapes for control, direction and invisible characters: people copy a stranger's command into a terminal."""
    return "".join(sign.encode("unicode_escape").decode() if unicodedata.category(sign) in UNSEEN else sign for sign in word)


def failure_of(notes: str) -> str | None:
    """Return the line of ``notes`` in which `sawtooth run` says that the training failed; None where it did not, or was recorded otherwise."""
    lines = notes.splitlines() if notes.startswith(RECORDED_BY) else []
    return next((line for line in lines if line.startswith(ENDED_WITH)), None)


def program_of(command: Sequence[str]) -> str:
    """Return the module that is trained, else the script's file name, else the program's; "" for no command."""
    return _program_at(command)[0]


def name_of(command: Sequence[str]) -> str:
    """Return what a run of ``command`` is called: rl.train of a module, train of a script."""
    program, _, module = _program_at(command)
    return program if module else PurePath(program).stem


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of the program and of what launches it, by flag: {"--workers": "8", "--amp": ""}; words without a flag under POSITIONAL."""
    _, at, module = _program_at(command)
    before = command[1 : at - 1 if module else at]
    return _by_flag(before) | _by_flag(command[at + 1 :])


def names_secret(flag: str) -> bool:
    """Tell whether the value of ``flag`` is likely a secret, which is shown to nobody."""
    return SECRET.search(flag) is not None


def _program_at(command: Sequence[str]) -> tuple[str, int, bool]:
    """Return the program, the place of the word that names it, and whether that is a module.

    What starts a Python may have an option -m of its own: numactl -m 1 python train.py.
    """
    before_script = takewhile(lambda word: not word.endswith(".py"), command)
    python = next((at for at, word in enumerate(before_script) if PYTHON.fullmatch(PurePath(word).name)), 0)
    for at, word in enumerate(command[python:], start=python):
        if word.endswith(".py"):
            return PurePath(word).name, at, False
        if word == "-m" and at + 1 < len(command) and command[at + 1] not in LAUNCHERS and MODULE.fullmatch(command[at + 1]):
            return command[at + 1], at + 1, True
    return (PurePath(command[0]).name, 0, False) if command else ("", 0, False)


def _by_flag(words: Sequence[str]) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    flag = POSITIONAL
    for word in words:
        named = CONFIGURED.match(word)
        if FLAG.match(word) or named:
            name, _, value = word.partition("=")
            values.setdefault(name, []).extend([value] if value else [])
            flag = POSITIONAL if named or value else name
        else:
            values.setdefault(flag, []).append(word)
    return {name: " ".join(texts) for name, texts in values.items()}
