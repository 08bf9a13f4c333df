"""Benchmarks of the hot paths. Each prints a ratio to a baseline of the same run; `make bench` runs them all."""
