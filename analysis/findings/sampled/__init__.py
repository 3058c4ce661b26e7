"""What samples show without or beside a profile: as findings, and all GPUs side by side."""
