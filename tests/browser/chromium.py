"""Which Chromium the tests drive."""

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """Return the path of a Chromium: SAWTOOTH_CHROMIUM, the system's, or Playwright's own; None where there is none."""
    if given := os.environ.get("SAWTOOTH_CHROMIUM"):
        return given if Path(given).exists() else None
    for name in NAMES:
        if found := shutil.which(name):
            return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None
