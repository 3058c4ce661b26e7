"""Runs as people speak of them: manifests, bundles to send, what is taken out before sending, and clocks only people know."""
