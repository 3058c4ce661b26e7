"""The layout of a data folder: the paths of recordings, derived files, sources and manifests.

``ingest`` writes recordings by this layout, and ``analysis`` reads them. This module opens no database.
"""

from __future__ import annotations

import os
import tempfile
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from sawtooth.ingest.errors import NotFoundError, UsageError, disk_error
from sawtooth.ingest.json_checksum import with_checksum, without_checksum
from sawtooth.ingest.locks import exclusive_lock
from sawtooth.ingest.manifest import Manifest, is_id
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.registry import samples_sql
from sawtooth.ingest.typed import from_json

SCHEMA_VERSION = 1
SCHEMA_SQL = Path(__file__).with_name("schema.sql")
STORAGE_VERSION = "v1.5.0"  # With this version, clients of DuckDB 1.5 can open a recording too.
# Every column of a DuckDB file takes at least one block. DuckDB's default of 256 kB makes files of small traces three times as large. 32 kB
# would make files of long traces larger.
BLOCK_BYTES = 64 << 10
# Every temporary name begins with this, so that ``files.remove_abandoned_drafts`` can remove the drafts of killed processes.
DRAFT_PREFIX = ".draft."


@cache
def schema_sql() -> str:
    """Return the statements that create a recording's tables.

    They are schema.sql with the sampled quantities as columns of ``samples`` and ``host_samples``.
    """
    text = SCHEMA_SQL.read_text(encoding="utf-8")
    for kind, (columns, comments) in (("sampled", samples_sql()), ("host", samples_sql("host_samples", HOST))):
        text = text.replace(f"-- {kind} quantities", columns).replace(f"-- comments of {kind} quantities", comments)
    return text


@dataclass(frozen=True)
class DataFolder:
    """Paths of one data folder. Ids are checked, so that no path contains foreign text."""

    root: Path

    @property
    def recordings(self) -> Path:
        """Published recordings, one read-only DuckDB file each."""
        return self.root / "recordings"

    @property
    def derived(self) -> Path:
        """Derived files, a cache of the analysis."""
        return self.root / "derived"

    @property
    def sources(self) -> Path:
        """Source bytes, gzip-compressed."""
        return self.root / "sources"

    @property
    def runs(self) -> Path:
        """Manifests."""
        return self.root / "runs"

    @property
    def proposals(self) -> Path:
        """Changes that bundles propose for existing runs, until the user decides."""
        return self.root / "proposals"

    @property
    def uploads(self) -> Path:
        """Uploads in progress and jobs' progress files."""
        return self.root / "uploads"

    @property
    def live(self) -> Path:
        """Sampler sessions: folders of append-only segments."""
        return self.root / "live"

    @property
    def access(self) -> Path:
        """Sessions of users and unused login links, as hashes of secrets."""
        return self.root / "access"

    def create(self) -> DataFolder:
        """Create missing folders and return self.

        A new data folder is readable only for its owner, because traces contain paths and host names.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders = (self.recordings, self.derived, self.sources, self.runs, self.proposals, self.uploads, self.live, self.access)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def recording_file(self, recording_id: str) -> Path:
        """Return the path of a recording of the current schema, whether it exists or not."""
        return self.recordings / f"{_check_id(recording_id)}.v{SCHEMA_VERSION}.duckdb"

    def summaries_file(self, summaries_id: str) -> Path:
        """Return the path of the summaries of a job's ranks."""
        return self.recordings / f"{_check_id(summaries_id)}.summaries.parquet"

    def derived_file(self, recording_id: str, analysis_version: int) -> Path:
        """Return the path of a recording's derived file."""
        return self.derived / f"{_check_id(recording_id)}.{analysis_version}.duckdb"

    def source_file(self, recording_id: str) -> Path:
        """Return the path of a recording's stored source."""
        return self.sources / f"{_check_id(recording_id)}.json.gz"

    def manifest_file(self, run_id: str) -> Path:
        """Return the path of a run's manifest."""
        return self.runs / f"{_check_id(run_id)}.json"

    def proposal_file(self, run_id: str) -> Path:
        """Return the path of a bundle's proposal for a run."""
        return self.proposals / f"{_check_id(run_id)}.json"

    def read_manifest(self, run_id: str) -> Manifest:
        """Read a manifest.

        Raises NotFoundError if the run is unknown or its manifest is damaged.
        """
        path = self.manifest_file(run_id)
        try:
            if path.exists() and not path.is_file():  # Reading a pipe would never end.
                raise ValueError("it is not a file")
            manifest = from_json(without_checksum(path.read_bytes()), Manifest)
            ids = [ref.id for ref in manifest.recordings] + [manifest.summaries or run_id]
            if manifest.id != run_id or not all(map(is_id, ids)):
                raise msgspec.ValidationError("an id in it is wrong")
            return manifest
        except FileNotFoundError:
            raise NotFoundError(
                f"This server has no run {run_id}. Import it with sawtooth import FILE.sawtooth, or drop its trace on the Runs page."
            ) from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NotFoundError(
                f"The manifest of run {run_id} is damaged ({error}). Ingest its trace again to restore it."
            ) from None
        except OSError as error:
            raise NotFoundError(
                f"The manifest of run {run_id} cannot be read ({error.strerror}). Check the file's permissions."
            ) from None

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace a run's manifest atomically, with its checksum.

        Raises SawtoothError if a value is invalid, or if the disk cannot be written.
        """
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        try:
            from_json(content, Manifest)
        except msgspec.ValidationError as error:
            raise UsageError(f"This cannot be stored with the run: {error}.") from None
        try:
            write_atomically(self.manifest_file(manifest.id), with_checksum(content))
        except OSError as error:
            raise disk_error(error) from error

    def manifests(self) -> list[Manifest]:
        """Return every readable manifest, newest first.

        Damaged manifests are left out; ``read_manifest`` reports them.
        """
        manifests = []
        for path in self.runs.glob("*.json"):
            if is_id(path.stem):
                try:
                    manifests.append(self.read_manifest(path.stem))
                except NotFoundError:
                    continue
        return sorted(manifests, key=lambda m: (-m.created_ns, m.name))

    def resolve_run(self, text: str) -> Manifest:
        """Return the run whose id is or begins with ``text``, or whose name is ``text``.

        Names match without regard to case and spaces. Raises NotFoundError for no match and UsageError for several.
        """
        if is_id(text):
            return self.read_manifest(text)
        hits = [
            m
            for m in self.manifests()
            if _comparable_name(m.name) == _comparable_name(text) or (len(text) >= 4 and m.id.startswith(text))
        ]
        if len(hits) > 1:
            raise UsageError(
                f"{text!r} names {len(hits)} runs ({', '.join(m.id for m in hits[:4])}). Give more characters of the id."
            )
        if not hits:
            raise NotFoundError(f"There is no run {text!r} here, and no such file. List the runs with sawtooth runs.")
        return hits[0]


def _comparable_name(name: str) -> str:
    """Return a name in lower case with single spaces.

    A name that was copied from a page may have other spaces.
    """
    return " ".join(unicodedata.normalize("NFC", name).split()).casefold()


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that a reader sees either the old file or the complete new one."""
    descriptor, temporary = tempfile.mkstemp(prefix=DRAFT_PREFIX, dir=path.parent)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            exclusive_lock(file),
        ):  # The lock marks a draft in progress; see sawtooth.ingest.files.
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _check_id(identifier: str) -> str:
    if not is_id(identifier):
        raise UsageError(f"{identifier!r} is not an id: ids have 16 hexadecimal digits.")
    return identifier
