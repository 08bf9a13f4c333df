"""The mesh in virtual time: the very agents that run live, driven from one event heap, or its engines alone.

Where live and simulated shells differ, the difference is a delay of `Delays`. Engine profile, SLOs and lambda* are
fixed before any policy is compared on them.

Invariants:
- Virtual time never runs backwards. Events of one instant run in the order in which they were scheduled.
  [tests/sim/test_sim_engine.py::test_the_heap_keeps_order_and_time]
- The agents here are the agents of the live services; the simulator stands in for their shells only.
  [tests/sim/test_mesh_sim.py::test_one_script_gives_the_same_effects_in_the_live_host]
- A true output length is read by the engine and, after a request's end, by the scorer. Nothing that decides sees it.
  [tests/sim/test_mesh_sim.py::test_true_lengths_change_no_decision_before_they_show]
- Every offered request is settled exactly once; what has not ended when a run is cut off counts as not finished.
  [tests/sim/test_mesh_sim.py::test_every_request_settles_once_with_its_own_length]
  [tests/sim/test_mesh_sim.py::test_what_does_not_end_before_the_cut_counts_as_not_finished]
- Same workload, configuration and seed: the same effects in the same order, in every process.
  [tests/sim/test_mesh_sim.py::test_the_hash_is_the_same_in_every_process]
- Skipping quiet engine steps leaves every token at the instant it would have had, had each step been taken.
  [tests/sim/test_sim_engine.py::test_skipping_equals_stepping]
"""
