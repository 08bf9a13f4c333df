"""How close the emulated engine comes to a real one: `make fidelity`.

A real vLLM on this CPU is calibrated by `hmas calibrate`; then slices of a trace that the calibration never saw are
replayed against it several times and once against the emulated engine with the fitted profile. The page states the
error of each figure beside its bound, and the spread of the real runs against each other.

Invariants
- Both engines hear the same requests at the same instants from the same load generator, by the same protocol.
- Nothing of a replay enters the profile: it is fitted to the calibration's own points.
- A replay is written down as it ends; an interrupted run goes on where it stopped, unless the scenario changed.
"""
