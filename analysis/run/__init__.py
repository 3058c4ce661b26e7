"""One analysed run: its data model, its verdict, and the report whose keys are stable."""
