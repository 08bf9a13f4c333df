"""Requests that two engines answer: one computes the prompt, the other reads its KV and generates."""
