"""Realisations of Pi_meta: V_long -> Omega behind one interface (H-MAS App. C.2).

A selector answers at once (`Selector`), or is asked and answers later (`llm`). Each pool has its own instance, so
that one may learn; place for a trained classifier, a contextual bandit and a change-point detector is here.
"""
