"""Measures what a relay between client and engine (the hop) costs in CPU time and latency."""
