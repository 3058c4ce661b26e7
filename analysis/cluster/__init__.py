"""Jobs of more ranks than one machine reads: each rank summarised where its trace lies, the summaries reduced on one node."""
