"""Measures how close the emulated engine comes to a real one: `make fidelity`.

A real vLLM on this CPU is calibrated by `hmas calibrate`; then slices of a trace that the calibration never saw are
replayed against it several times and once against the emulated engine with the fitted profile. The page states the
error of each figure beside its bound, and the spread of the real runs against each other.

Invariants
- Both engines get the same requests at the same instants from the same load generator, by the same protocol.
- The profile is fitted to the measurements of the calibration only, never to those of a replay.
- Each replay is stored when it ends. An interrupted run continues where it stopped, unless the scenario changed.
"""
