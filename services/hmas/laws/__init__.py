"""Shared pure code: what several rooms compute alike. It imports contracts only, and no clock, I/O or randomness."""
