"""The mesh in virtual time: the very agents that run live, driven from one event heap, beside baselines and limits.

Invariants
- Virtual time never runs backwards. Events of one instant run in the order in which they were scheduled.
- The agents here are the agents of the live services; the simulator stands in for their shells only. Where live and
  simulated shells differ, the difference is a delay of `Delays`.
- A true output length is read by the engine and, after a request's end, by the scorer. Nothing that decides sees it.
- Every offered request is settled exactly once; what has not ended when a run is cut off counts as not finished.
- Same workload, configuration and seed: the same effects in the same order, in every process.
- Skipping quiet engine steps leaves every token at the instant it would have had, had each step been taken.
- Engine profile, SLOs and lambda* are fixed before any policy is compared on them.
"""
