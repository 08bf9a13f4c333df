"""Makes synthetic workloads, and changes the load of a trace whether recorded or synthetic.

Invariants
- Each result depends only on the arguments and the seed. Arrivals ascend and lie in [0, duration).
- A function that scales the load says how in the trace's note. Time compression keeps every request and makes bursts
  steeper; thinning and superposition keep the times and remove or add requests.
"""
