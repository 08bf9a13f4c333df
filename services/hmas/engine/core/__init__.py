"""The emulated engine without I/O: vLLM V1's scheduler and KV cache over a cost model, driven step by step."""

from hmas.engine.core.core import EngineCore

__all__ = ["EngineCore"]
