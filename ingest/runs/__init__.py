"""Runs: manifests, bundles for sharing, redaction before sharing, and users' corrections of clocks."""
