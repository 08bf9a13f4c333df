"""Benchmarks of the hot paths. Most figures are ratios to a baseline of the same run; `make bench` runs them all."""
