"""The requests of this gateway: where each is, whether its run has stalled, and what telemetry tells of it."""
