"""Worth of perception and prediction: `python -m experiments.cognition` writes docs/results/cognition.md."""
