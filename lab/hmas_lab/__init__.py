"""The laboratory: what trains and evaluates the models that ship, labels traces, and compares systems in virtual time.

It may import everything of the product. The product never imports it, and the wheel does not hold it.
"""
