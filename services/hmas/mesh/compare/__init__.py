"""The commands `hmas compare` and `hmas replay`: one trace through the mesh, and directly at the same engines.

Engine profile and trace are fixed before anything is measured. "Direct" means that each request goes to the engine with
the fewest open requests, as a client library or a simple proxy would send it. A run in which the emulated engines lag
behind their own clock is invalid: it measures the CPU, not the schedule.

Invariants:
- Both sides are sent the same prompts.
  [tests/mesh/compare/test_compare_parts.py::test_both_sides_are_sent_the_same_prompts_in_which_perception_finds_types]
- SLOs follow the pace of the engines.
  [tests/mesh/compare/test_compare_parts.py::test_slos_follow_the_pace_of_the_engines]
"""
