"""The baselines: published serving systems, each as engines behind a client that sends every request to the engine with
the fewest outstanding requests."""
