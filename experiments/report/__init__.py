"""Pages of results. Everything on them comes from finished cells or from the paper; verdicts are computed.

Invariants: a figure that was not measured is a row that says so; a claim of the paper that does not hold is shown as
such beside the numbers; the same cells give the same bytes.
"""
