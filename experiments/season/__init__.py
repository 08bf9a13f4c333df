"""The season: whether re-planning a fleet pays over recorded days."""
