"""Request traces: one reader per published format, one row type for all of them.

Invariants
- Rows are in order of arrival; the first of a recorded trace arrives at 0 s.
- A malformed line raises `TraceError`, which names the file, the line and what to do; no line is skipped silently.
- Lengths are at least 1 token: an engine generates one token at the very least.
"""
