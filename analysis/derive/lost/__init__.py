"""Lost time: the owner of each nanosecond of the steady window, and causes, phases and evidence."""
