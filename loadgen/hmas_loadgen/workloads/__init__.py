"""Workloads made rather than recorded, and ways to change the load of either kind.

Invariants
- Everything is a function of its arguments and the seed; arrivals ascend and lie in [0, duration).
- What scales the load says how in the trace's note: time compression keeps every request and steepens bursts;
  thinning and superposition keep the clock and change who is there.
"""
