"""Plug-ins that run inside inference engines. They import nothing else of H-MAS: an engine's image needs only them.

Invariants
- An engine is never worse off with a plug-in than without it: every value is clamped to the engine's own limits, every
  exception is caught and counted, and the engine's own behaviour takes over.
- A plug-in does no network I/O and no blocking I/O in the engine's process: controls come in a small file in shared
  memory.
- Controls that the worker does not renew expire.
"""
