"""Where this copy of Sawtooth lies."""

from pathlib import Path

IMPORT_ROOT = (
    Path(__file__).resolve().parents[1]
)  # with this folder on its path, any Python finds the same ``sawtooth`` as this one
