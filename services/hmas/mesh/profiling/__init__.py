"""`hmas profile fit`: fits a catalogue of instance types to published measurements or to calibrations.

Reading, fitting and rendering are pure except for `silicon.py`, which reads a table, and `cli.py`.

Invariants:
- No type's costs are checked with the measurements they were fitted to but the own error, which is named so.
  [tests/mesh/profiling/test_card_scaling.py::test_a_left_out_number_of_cards_is_not_seen_by_the_fit]
- A cell that cannot be fitted is refused by name, and the others are fitted.
  [tests/mesh/profiling/test_fitted_types.py::test_a_cell_without_measurements_is_refused_and_the_others_are_fitted]
"""
