"""What runs inside engines. Nothing here imports anything else of ours: it goes into an engine's image as it is.

Invariants
- An engine is never worse off with a plug-in than without: every value is clamped to the engine's own limits, every
  fault is caught and counted, and the engine's own behaviour takes over.
- No network and no blocking I/O in an engine's process: controls come by a small file in shared memory.
- Controls that nobody renews run out.
"""
