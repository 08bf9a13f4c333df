"""What perception is worth on a real mesh, `make live-cognition`, and how well costs are predicted there, `make
live-prediction`."""
