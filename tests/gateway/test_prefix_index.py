"""The index of who holds which beginnings of prompts: against a plain model, bounded, and forgetful as engines are."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.job import PrefixChain
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.routing.prefix_index import ALONE, EPOCHS, FEW, NODE_STEP, SHARED, WAYS, PrefixIndex
from hmas.gateway.agent.routing.route_chooser import RouteChooser

NODE_TOKENS = 100


def chain(*nodes: int) -> PrefixChain:
    return PrefixChain(nodes, tuple(NODE_TOKENS * (i + 1) for i in range(len(nodes))), True)


def hold(index: PrefixIndex, place: int, prompt: PrefixChain) -> None:
    index.hold(place, prompt.nodes, (NODE_TOKENS,) * len(prompt.nodes))


def tokens_at(index: PrefixIndex, place: int, shared: list[tuple[int, dict[int, int]]]) -> int:
    return next((tokens for tokens, epochs in shared if epochs.get(place, 0) >= index.floors[place]), 0)


def test_the_longest_beginning_of_each_place_is_found() -> None:
    index = PrefixIndex(1024)
    a, b = index.enter(10_000), index.enter(10_000)
    hold(index, a, chain(1, 2, 3))
    hold(index, b, chain(1, 2))
    found, shared = index.held(chain(1, 2, 3, 4), 8)
    assert (found, shared) == ({a: 300, b: 200}, [])
    assert index.last_use(a, chain(1, 2, 3, 4)) == (300, 1)
    assert index.held(chain(9), 8) == ({}, [])


def test_a_node_that_many_hold_is_known_of_all_of_them() -> None:
    index = PrefixIndex(1024)
    places = [index.enter(10_000) for _ in range(3 * FEW)]
    for place in places:
        hold(index, place, chain(7))
    hold(index, places[-1], chain(7, 8))
    found, shared = index.held(chain(7, 8), 2 * FEW)
    assert found == {places[-1]: 200}
    assert [tokens_at(index, place, shared) for place in places] == [100] * len(places)
    index.holders[places[0]].cut(index.holders[places[0]].epoch)
    assert tokens_at(index, places[0], shared) == 0


def test_a_place_that_left_holds_nothing_and_its_number_starts_anew() -> None:
    index = PrefixIndex(1024)
    a = index.enter(10_000)
    hold(index, a, chain(1))
    index.leave(a)
    assert index.held(chain(1), 8) == ({}, [])
    assert index.enter(10_000) == a
    assert index.held(chain(1), 8) == ({}, [])


def test_a_cut_forgets_what_was_used_as_long_ago_and_nothing_else() -> None:
    index = PrefixIndex(4096)
    a = index.enter(EPOCHS * NODE_TOKENS)  # more than one node ends an epoch
    for node in range(1, 21):
        hold(index, a, chain(node))
    epochs = [index.epoch_of(a, node) for node in range(1, 21)]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 5
    index.holders[a].cut(epochs[9])
    assert [bool(index.last_use(a, chain(n))[0]) for n in range(1, 21)] == [e > epochs[9] for e in epochs]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), max_size=300), st.integers(500, 5_000))
def test_it_forgets_what_a_cache_of_that_memory_displaced(prompts: list[tuple[int, int]], capacity: int) -> None:
    """Against an exact cache that keeps what was used last: what it promises is there, up to one epoch's tokens."""
    index = PrefixIndex(4096)
    a = index.enter(capacity)
    cache: OrderedDict[int, None] = OrderedDict()
    for root, length in prompts:
        prompt = chain(*(root * 10 + i for i in range(length)))
        hold(index, a, prompt)
        for node in reversed(prompt.nodes):
            cache[node] = None
            cache.move_to_end(node)
    slack = capacity // EPOCHS + 5 * NODE_TOKENS
    recent = list(reversed(cache))
    surely = {n for i, n in enumerate(recent) if (i + 1) * NODE_TOKENS <= capacity - slack}
    surely_not = {n for i, n in enumerate(recent) if i * NODE_TOKENS > capacity + slack}
    promised = {n for n in recent if index.last_use(a, chain(n))[0]}
    assert surely <= promised
    assert not surely_not & promised
    place = index.holders[a]
    assert place.tokens <= capacity + slack


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4), st.integers(1, 9)), max_size=200), st.booleans())
def test_a_look_into_it_finds_what_each_place_used_last(uses: list[tuple[int, int, int]], leaves: bool) -> None:
    """Where no set is full, the deepest place is found with all that it holds, and nothing that is not held."""
    index = PrefixIndex(1 << 16)
    places = [index.enter(20 * NODE_TOKENS) for _ in range(12)]
    for who, root, length in uses:
        hold(index, places[who], spread(root, length))
    if leaves:
        index.leave(places.pop())
    for root in range(1, 5):
        prompt = spread(root, 12)
        found, shared = index.held(prompt, len(places))
        truth = {place: index.last_use(place, prompt)[0] for place in places}
        assert max([*found.values(), *(tokens_at(index, p, shared) for p in places)]) == max(truth.values())
        assert all(tokens <= truth[place] for place, tokens in found.items())


def test_the_filter_knows_of_every_node_and_forgets_what_was_overwritten() -> None:
    index = PrefixIndex(64, max_shared=2)
    places = [index.enter(10**9) for _ in range(FEW + 2)]
    for n in range(1, 3_000):
        for place in places if n % 50 == 0 else places[:1]:
            index.hold(place, (digest(n),), (1,))
    slots = [index._nodes[NODE_STEP * which + k] for which in range(index._mask + 1) for k in range(WAYS)]
    assert sum(index._filter) == sum(1 for node in slots if node) * ALONE + len(index._shared) * SHARED
    assert len(index) == 2 * len(places)
    assert len(index._shared) == 2
    assert all(index.held(chain(digest(n)), 1)[0] for n in range(2_990, 3_000))


def test_what_many_places_hold_is_bounded_in_pairs() -> None:
    index = PrefixIndex(64)
    places = [index.enter(10**9) for _ in range(20)]
    for n in range(1, 100):
        for place in places:
            index.hold(place, (digest(n),), (1,))
    assert len(index) == sum(len(many) for many in index._shared.values()) == 60
    assert list(index._shared) == [digest(n) for n in range(97, 100)]


def digest(number: int) -> int:
    return number * 0x9E3779B97F4A7C15 % 2**64


def spread(root: int, length: int) -> PrefixChain:
    return chain(*(digest(100 * root + i) for i in range(length)))


def test_its_memory_is_fixed_and_small() -> None:
    index = PrefixIndex(1 << 16)
    places = [index.enter(10**9) for _ in range(64)]
    before = index.bytes
    for i in range(1 << 17):
        index.hold(places[i % 64], ((i * 0x9E3779B97F4A7C15) % 2**64,), (1,))
    assert index.bytes == before <= 40 * (1 << 16)


def test_what_a_holder_uses_again_counts_once_and_as_used_now() -> None:
    """Its tokens are those of all nodes that it holds, each in the epoch of its last use."""
    index = RouteChooser(GatewayConfig(gateway="g")).index
    first, second = index.enter(1600), index.enter(1600)
    for _ in range(40):  # of several nodes in one set, and of a node that two hold, another slot is taken each time
        for number in (first, second):
            index.hold(number, (1 << 40, 2 << 40, 3 << 40), (100, 200, 300))
            holder = index.holders[number]
            epochs = [index.epoch_of(number, node << 40) for node in (1, 2, 3)]
            assert holder.tokens == 600 == sum(holder._buckets)
            assert epochs == sorted(epochs, reverse=True)
            assert epochs[0] == holder.epoch
    assert index.holders[first].epoch > 1
