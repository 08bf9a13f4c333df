"""Measures how close the emulated engine comes to a real one: `make fidelity`.

A real vLLM on this CPU is calibrated by `hmas calibrate`; then slices of a trace that the calibration never saw are
replayed against it several times, each time between two probes of the machine's speed. Each of these runs is emulated
by the engine's core with the fitted profile at that speed, in virtual time; and once, uncorrected, the slices are
replayed against the emulated engine's server. The page states the median error of each figure beside its bound.

What the method demands:
- Both engines get the same requests at the same instants from the same load generator, by the same protocol.
- The profile is fitted to the measurements of the calibration only, never to those of a replay, and a run's speed is
  that of its probes, whose work is the same each time.
- Each replay is stored when it ends. An interrupted run continues where it stopped, unless the scenario changed.
"""
