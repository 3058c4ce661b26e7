"""The HTML of the app: the pieces of a page, the reports that leave it, and the server's own pages, as Jinja2 templates.

Traces carry strangers' names. One environment escapes every value and takes out control and direction characters, so that no
caller can forget it; a name that a template expects and nobody gave is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sawtooth.app import format as fmt
from sawtooth.app.printable import printable

FOLDER = Path(__file__).parent
_QUOTED_CODE = re.compile(r"`([^`]+)`")


def _shown(value: Any) -> Any:
    """Return what a template prints: text of ours or a stranger's without control characters, markup as it is."""
    return fmt.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(sentence: str) -> Markup:
    """Return a sentence, escaped. It quotes code in backticks, for terminals and Markdown; a page shows that as code."""
    escaped = str(Markup.escape(fmt.spaced(fmt.clean(sentence))))  # as Markup, it would escape the tags that are put in
    return Markup(_QUOTED_CODE.sub(r"<code>\1</code>", escaped))


def _as_written(text: str) -> Markup:
    """Return code, escaped, with its line breaks and without other control characters: people copy it."""
    return Markup.escape(printable(text, kept="\n\t"))


def _breakable(text: str) -> Markup:
    """Return text, escaped, whose names may wrap after each underscore (copied, they are the names: ``<wbr>`` is no character), code in backticks as code."""
    escaped = str(Markup("_<wbr>").join(Markup.escape(part) for part in fmt.spaced(fmt.clean(text)).split("_")))
    return Markup(_QUOTED_CODE.sub(r"<code>\1</code>", escaped))


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_ENVIRONMENT.filters |= {
    "prose": _prose,
    "as_written": _as_written,
    "breakable": _breakable,
    "cut": fmt.clean,
}


def render(name: str, /, **values: Any) -> Markup:
    """Return template ``name`` (a file of this folder) with ``values``."""
    return Markup(_ENVIRONMENT.get_template(name).render(values))


def pieces(name: str) -> Any:
    """Return template ``name`` as an object whose methods are the macros defined there; each returns Markup."""
    return _ENVIRONMENT.get_template(name).module
