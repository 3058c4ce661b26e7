"""One analysed run: its data model, its verdict, and the report with stable keys."""
