"""Default values of the commands' options from ``sawtooth.toml``.

The file is in the current folder, or SAWTOOTH_CONFIG names it. An option of the command line overrides the environment,
the environment overrides the file, and the file overrides the built-in default.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from sawtooth.ingest.errors import UsageError

FILE = "sawtooth.toml"
CONFIG_VARIABLE = "SAWTOOTH_CONFIG"
DATA_KEY = "data"  # This is the only key outside the commands' tables.
# The file cannot set these options. It may come from somebody else, so it must not change who can log in.
FORBIDDEN_OPTIONS = frozenset({"token", "no-token", "help", "schema", "version"})
SEPARATE_COMMANDS = ("sample", "loader")  # These commands run in another process, which does not read this file.


def file_in_use() -> Path | None:
    """Return the path of the file; None if there is none.

    Raises UsageError if SAWTOOTH_CONFIG names a missing file.
    """
    if named := os.environ.get(CONFIG_VARIABLE):
        if not Path(named).is_file():
            raise UsageError(f"{CONFIG_VARIABLE} names {named}, which is not a file.")
        return Path(named).absolute()
    local_file = Path.cwd() / FILE
    return local_file if local_file.is_file() else None


def defaults(command: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the file's values for ``command``, by the parameters' names.

    ``options`` maps each option, without its dashes, to the name of its parameter. Raises UsageError for unknown keys.
    """
    file = file_in_use()
    if file is None:
        return {}
    content = _read(file, file.stat().st_mtime_ns)
    table = content.get(command, {})
    if not isinstance(table, dict):
        raise UsageError(f"{file.name}: {command} must be a table: [{command}].")
    unknown = sorted(set(table) - set(options) | set(table) & FORBIDDEN_OPTIONS)
    if unknown:
        option_names = ", ".join(sorted(set(options) - FORBIDDEN_OPTIONS)) or "nothing"
        raise UsageError(f"{file.name}: [{command}] cannot have {unknown[0]!r}. It takes: {option_names}.")
    values = {options[key]: value for key, value in table.items()}
    if DATA_KEY in options and DATA_KEY in content and not os.environ.get("SAWTOOTH_DATA"):
        values.setdefault(options[DATA_KEY], str(file.parent / Path(str(content[DATA_KEY])).expanduser()))
    return values


def of_command(name: str, command: Any) -> dict[str, Any]:
    """Return the file's values for a click command and its subcommands."""
    options = {
        option.lstrip("-"): parameter.name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in parameter.opts
    }
    values = defaults(name, options)
    for subcommand in getattr(command, "commands", {}).values():
        has_data_option = any(parameter.name == DATA_KEY for parameter in subcommand.params)
        values[subcommand.name] = {DATA_KEY: values[DATA_KEY]} if has_data_option and DATA_KEY in values else {}
    return values


def set_parser_defaults(parser: argparse.ArgumentParser, command: str) -> None:
    """Make the file's values the defaults of ``parser``.

    Raises UsageError if a switch has a value other than true or false, or if another option has true or false.
    """
    actions = {
        option.lstrip("-"): action for action in parser._actions for option in action.option_strings if option.startswith("--")
    }
    values = defaults(command, {option: action.dest for option, action in actions.items()})
    for action in actions.values():
        if action.dest in values and isinstance(values[action.dest], bool) != (action.nargs == 0):
            kind = "true or false" if action.nargs == 0 else "a value"
            raise UsageError(f"{FILE}: [{command}] {action.option_strings[-1].lstrip('-')} takes {kind}.")
    # The values are set as texts, so that argparse converts them like words of the command line.
    parser.set_defaults(**{name: value if isinstance(value, bool) else str(value) for name, value in values.items()})


def check(commands: Iterable[str]) -> None:
    """Raise UsageError if the file cannot be read, or if it has a key that is not a command."""
    file = file_in_use()
    tables = {DATA_KEY, *commands} - set(SEPARATE_COMMANDS)
    unknown = sorted(set(_read(file, file.stat().st_mtime_ns)) - tables) if file is not None else []
    if file is not None and unknown:
        raise UsageError(
            f"{file.name} cannot have {unknown[0]!r}. Its keys are {DATA_KEY} and the commands' tables, such as [compare]."
        )


@lru_cache(maxsize=4)
def _read(file: Path, _changed_ns: int) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file.name} cannot be read as TOML: {error}.") from None
