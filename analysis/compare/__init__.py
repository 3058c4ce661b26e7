"""Two runs or many: what changed, whether that is more than noise, gates, and sweeps over a setting."""
