"""Who owned each nanosecond of the steady window, and why nobody did: ledger, schedules, causes, phases and evidence."""
