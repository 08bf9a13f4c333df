"""Training of perception's model: corpus, network, loop, export. Only the loop and the network need torch.

Invariants
- Train, validation and test are split by prompt id (prompts of equal text share one), never by row.
- One seed, the data's checksum and the command fix the artefact; they are written into it.
- Answers written by people teach the task type only: their length is not the length a model would produce.
"""
