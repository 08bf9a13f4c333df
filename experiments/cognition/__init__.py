"""Measures how good perception and prediction are and what they are worth to the scheduler:
`python -m experiments.cognition` writes docs/results/cognition.md."""
