"""Who tags a prompt: the trained model, a language model, or the rules; `table.py` names them."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # heeded once, when onnxruntime starts
