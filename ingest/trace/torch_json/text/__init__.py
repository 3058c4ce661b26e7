"""The text of a trace: cut into blocks at event borders, decoded, mended where it is damaged, refused where it is no trace."""
