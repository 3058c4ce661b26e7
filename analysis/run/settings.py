"""The settings of a run, from its manifest and its tags."""

from __future__ import annotations

from sawtooth.ingest.manifest import Manifest


def settings_of(manifest: Manifest) -> dict[str, str]:
    """Return the manifest's settings, with those of its ``key=value`` tags."""
    tags = dict(tag.split("=", 1) for tag in manifest.tags if "=" in tag)
    return {key.strip(): value.strip() for key, value in {**tags, **manifest.settings}.items()}
