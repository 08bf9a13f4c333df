"""The engines as the worker sees them: their memory, steps, prompts and prefix caches, and what fits."""
