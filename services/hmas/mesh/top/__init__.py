"""The command `hmas top`, a live terminal view. Model and view are pure; the shell subscribes to NATS and redraws."""
