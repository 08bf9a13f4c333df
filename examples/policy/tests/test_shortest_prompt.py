"""What every order must hold, and what this one is for."""

from hmas.contracts.control import Hints
from hmas.testing import OrderProperties, waiting
from hmas_shortest_prompt import TOKENS_PER_SECOND, make_shortest_prompt


class TestShortestPrompt(OrderProperties):
    name = "shortest_prompt"
    make = staticmethod(make_shortest_prompt)


def test_the_shortest_prompt_goes_first_unless_another_came_much_earlier() -> None:
    order = make_shortest_prompt(Hints())
    order.push(waiting(1, arrival_s=0.0, prompt_tokens=2 * TOKENS_PER_SECOND))
    order.push(waiting(2, arrival_s=1.0, prompt_tokens=10))
    order.push(waiting(3, arrival_s=3.0, prompt_tokens=10))
    assert [entry.seq for entry in iter(order.pop, None)] == [2, 1, 3]
