"""Find the data folder and a run by the words of a command line.

This module imports little, so that a wrong name is reported before the large libraries are loaded.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

from sawtooth.app.printable import printable
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from sawtooth.installation import default_data_folder

MAX_NAME_CHARACTERS = 60  # A longer name of a run is cut in a message.


def data_root(data: Path | None) -> Path:
    """Return the path of the data folder of ``--data``, or of the default one, even if it does not exist."""
    return (data or default_data_folder()).expanduser().absolute()


def data_folder(data: Path | None) -> DataFolder:
    """Return the data folder of ``--data``, or the default one; create it if it is missing."""
    return DataFolder(data_root(data)).create()


def run_named(folder: DataFolder, text: str) -> Manifest:
    """Return the run whose id or name is ``text``.

    Raises NotFoundError with suggestions, and UsageError if several runs match.
    """
    try:
        return folder.resolve_run(text)
    except NotFoundError:
        names = [manifest.name for manifest in folder.manifests()]
    if not names:
        raise NotFoundError(f"There is no file {text!r}, and no run in {folder.root} yet. sawtooth ingest FILE makes a run.")
    closest = difflib.get_close_matches(text, names, n=1)
    suggestion = f" Did you mean {printable(closest[0][:MAX_NAME_CHARACTERS])}?" if closest else ""
    stored_runs = f"{len(names):,} run{'s' if len(names) > 1 else ''} in {folder.root}"
    raise NotFoundError(f"Neither a run nor a file is called {text!r}.{suggestion} sawtooth runs lists the {stored_runs}.")


def each_with_option(words: Sequence[str], option: str) -> list[str]:
    """Return the command line with ``option`` repeated before each of its words.

    An option of typer takes one word, but ``--to B1 B2 B3`` has three. Raises UsageError if no word follows the option.
    """
    rewritten: list[str] = []
    follows_option = False
    for word, next_word in zip_longest(words, words[1:], fillvalue="-"):
        if word.startswith("-"):
            follows_option = word == option
        if word != option:
            rewritten += [option, word] if follows_option else [word]
        elif next_word.startswith("-"):
            raise UsageError(f"{option} needs at least one run after it.")
    return rewritten


def refuse_unknown(words: Sequence[str]) -> None:
    """Raise NotFoundError if the only word before a command's options is neither a file nor a run."""
    if not words or words[0].startswith("-") or (len(words) > 1 and not words[1].startswith("-")):
        return
    data = next((Path(after) for word, after in pairwise(words) if word == "--data"), None)
    if not Path(words[0]).exists() and not any(word.startswith("--data=") for word in words):
        run_named(data_folder(data), words[0])
