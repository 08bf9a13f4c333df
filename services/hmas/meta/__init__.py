"""The meta controller: which topology a pool's queue has (H-MAS §3.4.1, App. C).

Invariants
- Precedence: an operator's pin, then the emergency bypass, then rollback, then the selector.
- A selector only proposes. What is not in Omega, malformed, late, banned or inside the dwell is rejected and
  audited, and where an answer was expected the rules decide in its place.
- Nothing waits for a selector: the last good topology stays in force, and is repeated, meanwhile.
- Each decision, each rejection and each guard that fires leaves one audit record with the view it was taken on.
"""
