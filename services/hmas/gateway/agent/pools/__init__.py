"""What heartbeats tell of pools: their models, their workers, and which worker has an engine."""
