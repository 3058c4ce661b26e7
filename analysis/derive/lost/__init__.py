"""Lost time: the owner of each nanosecond of the steady window; causes, phases and evidence."""
