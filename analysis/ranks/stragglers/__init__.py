"""Which ranks hold a job up, by how much and why: by replaying the job without what they lose, or against many peers."""
