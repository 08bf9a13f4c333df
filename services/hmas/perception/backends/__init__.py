"""The backends that tag a prompt: the trained model, a language model, or the rules; `table.py` lists them."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read once, when onnxruntime is imported
