"""Training of the cost models on measured serving data. Needs pandas and CatBoost; no accelerator.

What the method demands:
- A row describes its engine as it was when the request arrived: requests decoding, requests waiting, KV use.
- The seed, the data's checksum and the command determine the artefacts; they are written beside them.
"""
