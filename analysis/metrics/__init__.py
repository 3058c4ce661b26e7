"""Every number of the report: its definition, the reading with its trust, and how step time and MFU are chosen and computed."""
