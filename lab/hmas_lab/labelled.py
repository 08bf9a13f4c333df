"""Which labelled prompts train perception and which are held apart for tests and workloads, and whose answers count."""

from hashlib import sha256
from typing import Literal

Part = Literal["train", "validation", "test"]
SPLIT_SEED = 0  # of the artefacts that ship
TOOL_CALLS = "gold tool calls"
# Values of `response_model` that mark a reference text, which no language model wrote.
REFERENCES = frozenset({None, "human", TOOL_CALLS})
VALIDATION_SHARE = 0.1
TEST_SHARE = 0.2


def part_of(group: str, seed: int) -> Part:
    """Returns the part to which a prompt id belongs; a hash decides, so that adding data never moves a prompt."""
    share = int.from_bytes(sha256(f"{seed}:{group}".encode()).digest()[:8], "big") / 2**64
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"
