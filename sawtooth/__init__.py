"""Find why a training run leaves its GPU idle, what to change, and how much the change would bring.

In a notebook::

    import sawtooth

    before = sawtooth.analyse("trace.json.gz", "nvml.jsonl")   # one report from all files of a run
    after = sawtooth.analyse("fixed.json.gz")
    sawtooth.compare(before, after).verdict

The packages are ``sawtooth.ingest`` (reads and records files), ``sawtooth.analysis`` (computes results) and ``sawtooth.app``
(user interfaces). In a checkout they are next to this folder, in an installed copy inside it. Code always imports them as
``sawtooth.…``, because a training repository may have packages named ``app`` or ``ingest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sawtooth.installation import IMPORT_ROOT

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library as Library
    from sawtooth.notebook import analyse as analyse
    from sawtooth.notebook import compare as compare

if not (IMPORT_ROOT / "sawtooth" / "ingest").is_dir():  # In a checkout, the packages are beside this folder.
    __path__.append(str(IMPORT_ROOT))

__all__ = ["Library", "analyse", "compare"]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use, so that ``import sawtooth`` loads almost nothing."""
    if name == "Library":
        from sawtooth.analysis.store.library import Library

        return Library
    if name in ("analyse", "compare"):
        from sawtooth import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names too, so that ``help(sawtooth)`` and completion show them."""
    return sorted({*globals(), *__all__})
