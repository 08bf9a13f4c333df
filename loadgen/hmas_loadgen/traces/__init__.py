"""Reads request traces, with one reader per published format and one row type for all formats.

Invariants
- Rows are in order of arrival; the first of a recorded trace arrives at 0 s.
- A malformed line raises `TraceError`, which names the file, the line and what to do; no line is skipped silently.
- Lengths are at least 1 token, because an engine generates at least one.
"""
