"""Runs as people speak of them: manifests, bundles to send, what is taken out before sending, and clocks only people know."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "bundle": (
            "export_runs",
            "import_bundle",
        ),
        "bundle_file": (
            "is_bundle",
            "open_bundle",
        ),
        "clocks": (
            "ClockCorrection",
            "apply",
        ),
        "fitting": ("misfits",),
        "grouping": (
            "nearest_run",
            "overlapping_telemetry",
        ),
        "manifests": (
            "attach",
            "delete_run",
            "edit_run",
            "register_job",
            "register_runs",
        ),
        "naming": (
            "shown_path",
            "telling_name",
        ),
        "proposals": (
            "Proposal",
            "accept",
            "changed",
            "dismiss",
            "needed",
            "proposal_for",
        ),
        "recorders": (
            "recorder_of",
            "too_new",
        ),
        "recordings": ("recorded_ns",),
    },
)
