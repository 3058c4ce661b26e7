"""Facts of a recording that rules and pages share: GPU work, its launches and source lines."""
