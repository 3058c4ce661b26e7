"""Parts of a training command line: the program, its arguments, and the name for its runs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePath

RECORDED = "Recorded by `sawtooth "  # Notes of `sawtooth run` and of `sawtooth attach` begin with this text.
RECORDED_BY = f"{RECORDED}run"  # Notes of `sawtooth run` begin with this text. In old runs, only the notes contain the command.
ENDED_WITH = "The command ended with exit code"  # The line of the notes that reports a failure begins with this text.
# Lines of the notes with these texts change how numbers are read, because several processes trained, or recording changed the run.
SEVERAL_TRAINED = "processes trained. This report is about the one that stepped most"
EARLY_END = "The profile ended after"
PAUSED = "The recorder paused the training"
ENDED_BEFORE = "The training ended with exit code"  # In older notes, the line that reports a failure begins with this text.
# modules that start the training program
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
PYTHON = re.compile(r"python[\d.]*")
MODULE = re.compile(r"[^\W\d]\w*(\.\w+)*")
FLAG = re.compile(r"--?[A-Za-z]")  # Words such as -1 and -.5 are values, not flags.
HYDRA_ARGUMENT = re.compile(r"\+{0,2}[A-Za-z_][\w.@/]*=")  # Matches an argument of Hydra or OmegaConf, such as model.depth=3.
SECRET = re.compile(r"(?:key|secret|password|passwd|credentials?|token)$", re.IGNORECASE)
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # Characters of these Unicode categories are not visible.
POSITIONAL = "arguments without a name"


def command_of(command: Sequence[str], notes: str) -> list[str]:
    """Return the command that `sawtooth run` started; [] for runs that `sawtooth run` did not record.

    In old runs, ``command`` is empty, and the command is in the first line of ``notes``.
    """
    if not command and notes.startswith(RECORDED_BY):
        command = notes.splitlines()[0].removeprefix(RECORDED_BY).rstrip(".").removesuffix("`").split()
    return [visible(word) for word in command]


def visible(word: str) -> str:
    """Return ``word`` with escapes for control, direction and invisible characters.

    The escapes protect people who copy a command from another user's run into a terminal.
    """
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in INVISIBLE_CATEGORIES else char for char in word
    )


def failure_of(notes: str) -> str | None:
    """Return the line of ``notes`` that reports a failed training; None if there is none.

    Only `sawtooth run` writes this line.
    """
    lines = notes.splitlines() if notes.startswith(RECORDED_BY) else []
    return next((line for line in lines if line.startswith((ENDED_WITH, ENDED_BEFORE))), None)


def remarks_of(notes: str) -> list[str]:
    """Return the lines of ``notes`` from the recorder that change how the run's numbers are read."""
    lines = notes.splitlines() if notes.startswith(RECORDED) else []
    return [line for line in lines if SEVERAL_TRAINED in line or line.startswith((EARLY_END, PAUSED))]


def program_of(command: Sequence[str]) -> str:
    """Return the name of the module, else of the script, else of the executable; "" without a command."""
    return _program_at(command)[0]


def default_run_name(command: Sequence[str]) -> str:
    """Return the default name for runs of ``command``: rl.train for a module, train for train.py."""
    program, _, module = _program_at(command)
    return program if module else PurePath(program).stem


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of the program and of its launcher, by flag: {"--workers": "8", "--amp": ""}.

    Words without a flag are joined under the key POSITIONAL.
    """
    _, index, is_module = _program_at(command)
    # The -m before a module is not an argument of the launcher.
    launcher_arguments = command[1 : index - 1 if is_module else index]
    return _by_flag(launcher_arguments) | _by_flag(command[index + 1 :])


def names_secret(flag: str) -> bool:
    """Return whether the value of ``flag`` is probably a secret, which callers must hide."""
    return SECRET.search(flag) is not None


def _program_at(command: Sequence[str]) -> tuple[str, int, bool]:
    """Return the program, the index of its word, and whether the program is a module.

    The search begins at the Python executable, because a program before it may have its own option -m, as in
    numactl -m 1 python train.py.
    """
    start = _python_index(command)
    for index, word in enumerate(command[start:], start=start):
        if word.endswith(".py"):
            return PurePath(word).name, index, False
        module = command[index + 1] if word == "-m" and index + 1 < len(command) else ""
        if module not in LAUNCHERS and MODULE.fullmatch(module):
            return module, index + 1, True
    return (PurePath(command[0]).name, 0, False) if command else ("", 0, False)


def _python_index(command: Sequence[str]) -> int:
    """Return the index of the Python executable before the first script; 0 if there is none."""
    for index, word in enumerate(command):
        if word.endswith(".py"):
            break
        if PYTHON.fullmatch(PurePath(word).name):
            return index
    return 0


def _by_flag(words: Sequence[str]) -> dict[str, str]:
    """Group words by the flag before them.

    The word after ``--flag=value`` or Hydra's ``key=value`` does not belong to this flag.
    """
    values: dict[str, list[str]] = {}
    flag = POSITIONAL
    for word in words:
        is_hydra = HYDRA_ARGUMENT.match(word) is not None
        if not is_hydra and not FLAG.match(word):
            values.setdefault(flag, []).append(word)
            continue
        name, _, value = word.partition("=")
        flag_values = values.setdefault(name, [])
        if value:
            flag_values.append(value)
        flag = POSITIONAL if is_hydra or value else name
    return {name: " ".join(texts) for name, texts in values.items()}
