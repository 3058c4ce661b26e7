"""What kind of loop a recording shows."""
