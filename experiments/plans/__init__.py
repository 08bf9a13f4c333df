"""The study of plans: which engines a budget of cards should run, by MaaSO, by its baselines and by our search."""
