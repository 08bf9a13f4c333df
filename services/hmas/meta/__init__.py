"""The meta controller, which decides the topology of each pool (H-MAS §3.4.1, App. C).

Invariants
- Precedence: an operator's pin, then the emergency bypass, then rollback, then the selector.
- A selector only proposes. A proposal that is not in Omega, malformed, late, banned or within the dwell is rejected and
  audited; where a language model was asked and gave no usable answer, the rules decide instead.
- Nothing waits for a selector: meanwhile the last good topology stays in force and is repeated.
- Each decision, each rejection and each guard that fires leaves one audit record with the view that it was taken on.
"""
