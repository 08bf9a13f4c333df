"""A request inside the worker."""
