"""Where transitions come from, and what a run carries from chunk to chunk."""
