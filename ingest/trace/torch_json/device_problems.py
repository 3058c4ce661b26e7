"""Find devices whose operations are not read, and operations with contradicting device numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import ImportDiagnostic

EXAMPLE_CHARACTERS = 60  # Longer examples in a note are cut to this many characters.
# Processes of accelerators whose profilers write operations in their own format, without a category.
DEVICE_PROCESS = re.compile(r"\b(Ascend|NPU|HPU|Gaudi|TPU|MLU|Neuron)", re.IGNORECASE)
# Gaudi's bridge writes the work of matrix and tensor engines as kernels. It writes calls of its host library and the work of all
# other engines in this category, so an event of the category may be the host's or the device's.
GAUDI = "hpu_op"
MIXED = "devices_mixed"  # Key of the diagnostic that analysis/integrity/devices.py reads.


def unread_device(process_names: Mapping[str, str], other: Mapping[str, int]) -> ImportDiagnostic | None:
    """Return a row of ``diagnostics`` if no operation of a device was read, else None.

    ``other`` counts the unread events by category. A device is known from events of GAUDI, or from the name of a process
    (DEVICE_PROCESS) and events without a category.
    """
    if gaudi := other.get(GAUDI, 0):
        sentence = f"{gaudi:,} events of Gaudi's host library (“{GAUDI}”) were found, but no kernels, so the device's work is not known. Record with HABANA_PROFILE=1."
        return ImportDiagnostic("device_not_read", "error", sentence, gaudi, GAUDI)
    device = next((name for name in process_names.values() if DEVICE_PROCESS.search(name)), None)
    without_category = other.get("", 0)
    if device is None or not without_category:
        return None
    name = device[:EXAMPLE_CHARACTERS]
    sentence = f"{without_category:,} events without a category were not read. They include events of “{name}”, so the device's work is not known."
    return ImportDiagnostic("device_not_read", "error", sentence, without_category, name)


def mixed_contexts(contexts: Counter[tuple[int, int]]) -> Iterator[ImportDiagnostic]:
    """Yield a row of ``diagnostics`` if operations of one CUDA context are on several devices.

    ``contexts`` counts the operations by context and device. The row counts operations that are not on the most frequent device of their context.
    """
    largest: Counter[int] = Counter()
    for (context, _), count in contexts.items():
        largest[context] = max(largest[context], count)
    contradicting = sum(count for (context, _), count in contexts.items() if context != NULL)
    contradicting -= sum(count for context, count in largest.items() if context != NULL)
    if contradicting:
        sentence = f"{contradicting:,} GPU operations have another device number than other operations of their CUDA context."
        yield ImportDiagnostic(MIXED, "data_loss", sentence, contradicting)
