"""Training of perception's model: corpus, network, training loop and export to ONNX.

What the method demands:
- Training, validation and test parts are split by prompt id (prompts of equal text share one), never by row.
- The seed, the data's checksum and the command determine the artefact; they are written into it.
- Answers written by people teach the task type only: their length is not the length that a model would produce.
"""
