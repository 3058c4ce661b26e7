"""Every number of the report: definition, reading and trust, and the choice of step time and MFU."""
