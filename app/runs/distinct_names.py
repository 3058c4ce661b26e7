"""Names of runs that differ even if several runs of one script have the same name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sawtooth.app.format import clean
from sawtooth.ingest.loop.command import POSITIONAL, arguments_of, names_secret
from sawtooth.ingest.manifest import Manifest

MAX_CHANGE_CHARACTERS = 40  # Characters of the arguments in which a run differs from its namesakes.
RELATIONS = ("after", "try")  # Tags that relate a run to another one, and are no setting of its training.
ADDRESSES = ("--master", "--rdzv")  # Arguments of launchers that say where a job runs: they change with each start.


def distinct_names(manifests: Sequence[Manifest], length: int = 60) -> dict[str, str]:
    """Return the displayed name of each run by id, at most ``length`` characters of the own name.

    Namesakes are numbered from the oldest on, so that a new run changes no other number. Then follow the settings and
    arguments of the command that differ among them: "train #2 · --workers 8".
    """
    namesakes: dict[str, list[Manifest]] = defaultdict(list)
    for manifest in sorted(manifests, key=lambda m: (m.created_ns, m.id)):
        namesakes[clean(manifest.name, length)].append(manifest)
    names = {}
    for name, runs in namesakes.items():
        if len(runs) == 1:
            names[runs[0].id] = name
            continue
        changes = _changes([_settings(manifest) for manifest in runs])
        for number, (manifest, change) in enumerate(zip(runs, changes, strict=True), start=1):
            names[manifest.id] = " · ".join(filter(None, (f"{name} #{number}", change)))
    return names


def _settings(manifest: Manifest) -> dict[str, str]:
    """Return the run's settings and its command's arguments, without secrets."""
    command = manifest.recorded_command
    every = {**manifest.all_settings, **(arguments_of(command) if command else {})}
    shown_settings = {
        k: v for k, v in every.items() if k not in RELATIONS and not k.startswith(ADDRESSES) and not names_secret(k)
    }
    # A path, such as the folder of the output, says little about a training and is too long for a name.
    words = {key: [word for word in value.split() if not word.startswith("/")] for key, value in shown_settings.items()}
    return {key: " ".join(words[key]) for key in shown_settings if words[key] or not shown_settings[key]}


def _changes(runs: Sequence[Mapping[str, str]]) -> list[str]:
    """Return in words the settings of each run that differ among ``runs``; "" if there are none."""
    keys = dict.fromkeys(key for settings in runs for key in settings)
    differing = [key for key in keys if len({settings.get(key) for settings in runs}) > 1]
    return [
        clean(", ".join(_words(key, settings[key]) for key in differing if key in settings), MAX_CHANGE_CHARACTERS)
        for settings in runs
    ]


def _words(key: str, value: str) -> str:
    return value if key == POSITIONAL else f"{key} {value}".strip()
