"""What the discovery of engines decides: which of those found belong to this worker."""
