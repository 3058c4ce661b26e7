"""Parts of a training's command line: its program, its arguments, and the name for its runs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

RECORDED_BY = "Recorded by `sawtooth run"  # Notes of a run begin with this. In old runs, only the notes contain the command.
ENDED_WITH = "The command ended with exit code"  # The line of the notes that reports a failure begins with this.
ENDED_BEFORE = "The training ended with exit code"  # the same in older notes
LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)  # modules that start the training program
PYTHON = re.compile(r"python[\d.]*")
MODULE = re.compile(r"[^\W\d]\w*(\.\w+)*")
FLAG = re.compile(r"--?[A-Za-z]")  # Words such as -1 and -.5 are values, not flags.
CONFIGURED = re.compile(r"\+{0,2}[A-Za-z_][\w.@/]*=")  # arguments of Hydra and OmegaConf, such as model.depth=3
SECRET = re.compile(r"(?:key|secret|password|passwd|credentials?|token)$", re.IGNORECASE)
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # Unicode categories of invisible characters
POSITIONAL = "arguments without a name"


def command_of(command: Sequence[str], notes: str) -> list[str]:
    """Return the command that `sawtooth run` started; [] for runs that it did not record.

    Old runs do not store ``command``. For those, the command is read from ``notes``.
    """
    if not command and notes.startswith(RECORDED_BY):
        command = notes.splitlines()[0].removeprefix(RECORDED_BY).rstrip(".").removesuffix("`").split()
    return [visible(word) for word in command]


def visible(word: str) -> str:
    """Return ``word`` with escapes for control, direction and invisible characters.

    This protects people who copy a command from someone else's run into a terminal.
    """
    return "".join(sign.encode("unicode_escape").decode() if unicodedata.category(sign) in UNSEEN else sign for sign in word)


def failure_of(notes: str) -> str | None:
    """Return the line of ``notes`` that says that the training failed; None if there is none.

    Only `sawtooth run` writes this line.
    """
    lines = notes.splitlines() if notes.startswith(RECORDED_BY) else []
    return next((line for line in lines if line.startswith((ENDED_WITH, ENDED_BEFORE))), None)


def program_of(command: Sequence[str]) -> str:
    """Return the name of the module, else of the script, else of the program; "" without a command."""
    return _program_at(command)[0]


def name_of(command: Sequence[str]) -> str:
    """Return the default name for runs of ``command``: rl.train for a module, train for train.py."""
    program, _, module = _program_at(command)
    return program if module else PurePath(program).stem


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of the program and of its launcher, by flag: {"--workers": "8", "--amp": ""}.

    Words without a flag are joined under the key POSITIONAL.
    """
    _, at, module = _program_at(command)
    before = command[1 : at - 1 if module else at]
    return _by_flag(before) | _by_flag(command[at + 1 :])


def names_secret(flag: str) -> bool:
    """Tell whether the value of ``flag`` is probably a secret. Such values are never shown."""
    return SECRET.search(flag) is not None


def _program_at(command: Sequence[str]) -> tuple[str, int, bool]:
    """Return the program, the index of the word that names it, and whether it is a module.

    The search begins at the Python executable, because a program before it may have its own option -m, as in
    numactl -m 1 python train.py.
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
