"""One part of the API that the gateway serves: what of a body is its prompt, what bounds the answer, and by what its
answer, its stream and its errors are recognised. Those that read bodies and those that read engines' answers share it.

A form without a bound generates nothing (`prefill_only`): the engine computes the prompt, and to every agent the
request is one whose answer has no tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hmas.gateway.errors import ErrorShape


@dataclass(frozen=True, slots=True)
class PromptRead:
    """What is read of a body: its texts, for perception, and the estimate of its tokens."""

    texts: list[str]
    tokens: int


@dataclass(frozen=True, slots=True)
class EventNames:
    """The names of a stream's events, where these are named (`event: NAME`): those of which each holds a token, and
    those after which nothing comes. `token_suffix` stands for all names that end so."""

    tokens: frozenset[bytes]
    ends: frozenset[bytes]
    token_suffix: bytes = b"\n"  # in no name

    def is_token(self, name: bytes) -> bool:
        return name in self.tokens or name.endswith(self.token_suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiForm:
    """One path of the API.

    `bounds`: the fields that may bound the answer, of which the first counts. `answers`: fields of which every whole
    answer has one. `reason`: the field of an answer, or of each of its choices, that says why it ended; empty if
    nothing is generated. `events`: those of a stream; None: it has OpenAI's unnamed chunks. `listed`: an answer may be
    a list as well. `fixed`: fields that the engine's body gets whatever the client sent.
    """

    path: str
    read: Callable[[dict[str, Any]], PromptRead]
    bounds: tuple[str, ...]
    answers: tuple[str, ...]
    reason: str = ""
    events: EventNames | None = None
    errors: ErrorShape = ErrorShape.OPENAI
    listed: bool = False
    fixed: Mapping[str, Any] | None = None

    @property
    def prefill_only(self) -> bool:
        return not self.bounds

    @property
    def chunked(self) -> bool:
        """Whether it is one of the two forms whose streams have OpenAI's chunks, and whose length a replay can set."""
        return self.events is None and not self.prefill_only
