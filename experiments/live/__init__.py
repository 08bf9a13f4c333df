"""What perception is worth on a real mesh: `make live-cognition`."""
