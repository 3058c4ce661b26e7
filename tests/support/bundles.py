"""Hand-made bundles, intact and hostile."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any


def packed(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def manifest_bytes(**change: Any) -> bytes:
    run = {"name": "r", "recordings": [{"member": "sources/0001.gz", "source_name": "t.json", "kind": "trace"}]}
    return json.dumps({"runs": [run], **change}).encode()
