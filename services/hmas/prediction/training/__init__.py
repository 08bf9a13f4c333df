"""Training of the cost models on measured serving data. Needs pandas and CatBoost; no accelerator.

Invariants
- What a row knows of its engine is what stood at its arrival: requests decoding, requests waiting, KV use.
- One seed, the data's checksum and the command fix the artefacts; they are written beside them.
"""
