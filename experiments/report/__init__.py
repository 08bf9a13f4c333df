"""Writes the pages of results. Their figures come from finished cells (stored runs) or from the papers, and every
verdict on a claim is computed.

Invariants: a figure that was not measured is shown as such; a claim of the paper that does not hold is shown as such,
with the numbers; the same cells give the same bytes.
"""
