"""The `hmas` command, and the embedded mesh: a NATS server and every service on one machine.

Invariants:
- The supervisor starts each service as a process of its own and restarts those that die.
  [tests/mesh/test_process.py::test_what_dies_is_restarted_and_what_is_stopped_stays_down]
- It leaves none behind. [tests/mesh/test_process.py::test_a_killed_supervisor_leaves_nothing_behind]
- `<data dir>/mesh.json` holds everything that another command needs to find the running mesh.
  [tests/mesh/test_plan_state.py::test_state_is_found_and_its_absence_explained]
"""
