"""Places of sources and summaries: a folder, or a bucket of S3, Google Cloud or Azure through obstore.

An address is a path, or ``s3://…``, ``gs://…`` or ``az://…``. Buckets are read through obstore, with the machine's credentials.
For a path, obstore is not loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.schema import write_atomically

SCHEMES = ("s3://", "gs://", "az://", "abfs://", "abfss://")
# Files with these endings are never traces or telemetry.
SKIPPED_SUFFIXES = (".md", ".py", ".png", ".html", ".log", ".duckdb", ".parquet", ".txt")
PIECE_BYTES = 8 << 20  # Objects are fetched in pieces, because a trace may be larger than a node's memory.
NO_OBSTORE = "Reading {url} needs obstore, which is not installed. Install sawtooth[cluster]."


@dataclass(frozen=True)
class SourceVersion:
    """A source and its size; ``state`` is an entity tag, or size and time of the last change."""

    url: str
    state: str
    bytes: int


class Storage(Protocol):
    """A folder or a bucket's prefix; names are relative to it."""

    url: str

    def sources(self) -> Iterator[SourceVersion]:
        """Yield all objects in it."""
        ...

    def names(self) -> set[str]:
        """Return the names of all objects in it."""
        ...

    def read(self, name: str) -> bytes:
        """Return an object's bytes. Raises NotFoundError if there is no such object."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Replace an object atomically: a reader gets either the old or the complete new bytes."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        ...

    def fetch(self, name: str, to: Path) -> Path:
        """Return a local file with an object's bytes. This is ``to`` if the bytes had to be copied.

        Raises NotFoundError if there is no such object.
        """
        ...


class Folder:
    """A folder of this machine, or one that all nodes share."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.url = str(self.root)

    def sources(self) -> Iterator[SourceVersion]:
        """Yield all files in it and its subfolders."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(self.root).parts):
                yield _local_source(path)

    def names(self) -> set[str]:
        """Return the names of the files in it."""
        return {path.name for path in self.root.glob("*") if not path.name.startswith(".")} if self.root.is_dir() else set()

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises NotFoundError if there is no such file."""
        with _as_ours(f"{self.url}/{name}"):
            return (self.root / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically."""
        with _as_ours(f"{self.url}/{name}"):
            self.root.mkdir(parents=True, exist_ok=True)
            write_atomically(self.root / name, content)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self.root / name).unlink(missing_ok=True)

    def fetch(self, name: str, to: Path) -> Path:
        """Return the file itself. Raises NotFoundError if there is no such file."""
        path = self.root / name
        if not path.is_file():
            raise NotFoundError(f"{path} does not exist any more. Run sawtooth map again.")
        return path


class ObjectStore:
    """The objects under an address of an object store."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store = _store(self.url)

    def sources(self) -> Iterator[SourceVersion]:
        """Yield all objects under it."""
        for meta in self._list():
            state = meta.get("e_tag") or f"{meta['size']}-{meta['last_modified'].timestamp()}"
            yield SourceVersion(f"{self.url}/{meta['path']}", state, int(meta["size"]))

    def names(self) -> set[str]:
        """Return the names of the objects directly under it."""
        return {path for meta in self._list() if "/" not in (path := str(meta["path"]))}

    def read(self, name: str) -> bytes:
        """Return an object's bytes. Raises NotFoundError if there is no such object."""
        with _as_ours(f"{self.url}/{name}"):
            return bytes(self._store.get(name).bytes())

    def write(self, name: str, content: bytes) -> None:
        """Replace an object; object stores do this atomically."""
        with _as_ours(f"{self.url}/{name}"):
            self._store.put(name, content)

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with contextlib.suppress(FileNotFoundError), _as_ours(f"{self.url}/{name}", missing=False):
            self._store.delete(name)

    def fetch(self, name: str, to: Path) -> Path:
        """Copy an object to ``to``. Raises NotFoundError if there is no such object."""
        with _as_ours(f"{self.url}/{name}"), to.open("wb") as file:
            for piece in self._store.get(name).stream(min_chunk_size=PIECE_BYTES):
                file.write(piece)
        return to

    def _list(self) -> Iterator[Any]:
        with _as_ours(self.url):
            for chunk in self._store.list():
                yield from chunk


def storage_at(url: str) -> Storage:
    """Return the storage at ``url``.

    Raises UsageError for an unknown kind of address, or if obstore is missing.
    """
    if url.startswith(SCHEMES):
        return ObjectStore(url)
    if "://" in url:
        raise UsageError(f"{url} is not a supported address. Use a folder, s3://, gs:// or az://.")
    return Folder(Path(url))


def parent_of(source: SourceVersion) -> tuple[Storage, str]:
    """Return the storage that contains a source, and the source's name there."""
    folder, _, name = source.url.rpartition("/")
    return storage_at(folder), name


def is_below(url: str, place: str) -> bool:
    """Return whether an address is ``place`` or below it; links of local files are resolved first."""
    if url.startswith(SCHEMES) or place.startswith(SCHEMES):
        inside = url == place or url.startswith(f"{place.rstrip('/')}/")
        return place.startswith(SCHEMES) and inside and ".." not in url.split("/")
    return "://" not in url and Path(url).expanduser().resolve().is_relative_to(Path(place).expanduser().resolve())


def list_sources(urls: Iterable[str]) -> list[SourceVersion]:
    """Return the traces and telemetry files at ``urls``, ordered by address.

    An address may be a file, a folder (with its subfolders), or a prefix. Raises UsageError if there are no such files at an address.
    """
    sources: dict[str, SourceVersion] = {}
    for url in urls:
        listed = list(_source_at(url))
        if not listed:
            raise UsageError(f"There is neither a trace nor telemetry at {url}. Give the folder with the traces.")
        sources.update({source.url: source for source in listed})
    return [sources[url] for url in sorted(sources)]


def part_of(sources: Sequence[SourceVersion], part: int, parts: int) -> list[SourceVersion]:
    """Return the ``part``-th (from 1) of ``parts`` shares of the sources.

    A source's share depends only on its address, so it stays the same when sources are added.
    """
    return [s for s in sources if int.from_bytes(hashlib.sha256(s.url.encode()).digest()[:8], "big") % parts == part - 1]


def _source_at(url: str) -> Iterator[SourceVersion]:
    if not url.startswith(SCHEMES) and "://" not in url and (path := Path(url).expanduser().absolute()).is_file():
        yield _local_source(path)
        return
    single = url.startswith(SCHEMES) and Path(url).suffix in (".json", ".gz", ".jsonl", ".csv", ".sqlite")
    listed = url.rpartition("/")[0] if single else url
    for source in storage_at(listed).sources():
        if source.url == url or (not single and not source.url.endswith(SKIPPED_SUFFIXES)):
            yield source


def _local_source(path: Path) -> SourceVersion:
    status = path.stat()
    return SourceVersion(str(path), f"{status.st_size}-{status.st_mtime_ns}", status.st_size)


def _store(url: str) -> Any:
    try:
        from obstore.store import from_url
    except ImportError:
        raise UsageError(NO_OBSTORE.format(url=url)) from None
    with _as_ours(url):
        return from_url(url)


@contextlib.contextmanager
def _as_ours(url: str, *, missing: bool = True) -> Iterator[None]:
    """Replace errors of files and stores by our own, because messages of stores may contain credentials."""
    try:
        yield
    except FileNotFoundError:
        if not missing:
            raise
        raise NotFoundError(f"{url} does not exist. Check the address.") from None
    except OSError as error:
        raise SawtoothError(
            f"{url} cannot be read or written ({error.strerror or type(error).__name__}). Check the address and its permissions."
        ) from None
    except SawtoothError:
        raise
    except Exception as error:
        if type(error).__module__.startswith("obstore"):
            raise SawtoothError(
                f"{url} cannot be read or written ({type(error).__name__}). Check the address, the credentials and the network."
            ) from None
        raise
