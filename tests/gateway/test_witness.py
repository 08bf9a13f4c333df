"""Several witnesses are told of every moment."""

import inspect
from typing import Any

from hmas.gateway.witness import Witness, Witnesses

MOMENTS = [name for name, _ in inspect.getmembers(Witness, inspect.isfunction) if not name.startswith("_")]


class Remembering(Witness):
    def __init__(self, seen: list[tuple[Any, ...]]) -> None:
        for name in MOMENTS:
            setattr(self, name, lambda *told, moment=name: seen.append((self, moment, *told)))


def test_each_is_told_of_every_moment_in_their_order() -> None:
    seen: list[tuple[Any, ...]] = []
    first, second = Remembering(seen), Remembering(seen)
    both: Any = Witnesses(first, second)
    for name in MOMENTS:
        told = [object() for _ in inspect.signature(getattr(both, name)).parameters]
        getattr(both, name)(*told)
        assert seen == [(first, name, *told), (second, name, *told)]
        seen.clear()
