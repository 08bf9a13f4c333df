"""The emulated engine without its process: vLLM V1's scheduler and memory over a cost model, driven step by step."""

from hmas.engine.core.core import EngineCore

__all__ = ["EngineCore"]
