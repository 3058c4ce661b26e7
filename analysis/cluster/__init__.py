"""Jobs with more ranks than one machine can read: summaries of ranks, combined on one node."""
