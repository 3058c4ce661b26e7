"""Runs: manifests, bundles to send, redaction before sending, and clocks that only people know."""
