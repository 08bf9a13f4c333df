"""The selectors, which propose a topology for a view: Pi_meta: V_long -> Omega (H-MAS App. C.2).

A selector answers at once (`Selector`), or is asked and answers later (`llm`). Each pool has its own instance, so that
a selector may learn.
"""
