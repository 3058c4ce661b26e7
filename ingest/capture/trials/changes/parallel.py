"""Changes of DistributedDataParallel's arguments: bucket size, bucket views, static graph.

DDP's own log after the third step proves the changes. If this version of DDP does not accept an argument, the change is skipped. Requested
channels-last weights are converted here, before DDP receives the model. Standard library only.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..patching import change_arguments
from .outermost import to_channels_last

if TYPE_CHECKING:
    from ..trial_state import TrialState

BUCKET, VIEW, STATIC = "ddp-bucket-size", "ddp-gradient-views", "ddp-static-graph"
MIB = 1 << 20
# The changes are proven after this many steps. DDP rebuilds its buckets after the first step, and then logs the new buckets.
PROVEN_AFTER = 3


def _patch(module: ModuleType, state: TrialState) -> None:
    def change(model: Any, arguments: dict[str, Any]) -> list[str]:
        slugs = []
        if (values := state.requested(BUCKET)) is not None:
            arguments["bucket_cap_mb"] = values["mb"]
            slugs.append(BUCKET)
        for slug, name in ((VIEW, "gradient_as_bucket_view"), (STATIC, "static_graph")):
            if state.requested(slug) is not None and name in arguments and not arguments[name]:
                arguments[name] = True
                slugs.append(slug)
        to_channels_last(arguments["module"], state)
        return slugs

    def after(model: Any, arguments: dict[str, Any]) -> None:
        state.notes.note_seen(
            "ddp",
            bucket_mb=getattr(model, "bucket_bytes_cap", 0) / MIB,
            views=bool(model.gradient_as_bucket_view),
            static=bool(getattr(model, "static_graph", False)),
        )
        state.after_step(PROVEN_AFTER, lambda: _prove(model, state))

    change_arguments(module.DistributedDataParallel, state, change, after)


def _prove(ddp: Any, state: TrialState) -> None:
    logged = ddp._get_ddp_logging_data()
    values = state.requested(BUCKET)
    if values is not None and logged.get("bucket_cap_bytes") == int(values["mb"] * MIB):
        state.notes.note_proof(BUCKET, f"DDP logs buckets of {values['mb']:g} MiB.")
    if state.requested(VIEW) is not None and logged.get("gradient_as_bucket_view"):
        state.notes.note_proof(VIEW, "DDP logs gradient_as_bucket_view.")
    if state.requested(STATIC) is not None and logged.get("static_graph"):
        state.notes.note_proof(STATIC, "DDP logs static_graph.")


PATCHES = {"torch.nn.parallel.distributed": _patch}
