"""Versions: of the tool, and of what analysis computes (a derived file of another version is rebuilt)."""

from importlib import metadata

ANALYSIS_VERSION = 7

try:
    TOOL_VERSION = metadata.version("sawtooth")
except metadata.PackageNotFoundError:  # run from a checkout that is not installed
    TOOL_VERSION = "0+unknown"
