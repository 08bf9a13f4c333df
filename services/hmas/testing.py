"""What every order of the queue must hold, for the tests of a package that adds one (docs/plugins.md). It needs
Hypothesis.

    from hmas.testing import OrderProperties

    class TestMine(OrderProperties):
        name = "mine"
        make = staticmethod(make_mine)

Under pytest each property is a test of its own. The built-in orders are held to the same.
"""

from collections.abc import Callable
from copy import deepcopy
from gc import get_referents
from types import BuiltinFunctionType, FunctionType, ModuleType

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.queue import MAX_WHY_CHARS
from hmas.contracts.request import Annotation, Cost, KindCost, Request, Slo, Tags, TagSource, TaskType
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.plugged import PluggedOrder
from hmas.worker.agent.order.topologies import MakeTopology

TENANTS = 6_000  # that come and go; orders that share service may remember 4096 of them
MOST_GROWTH = 1.2
DEFAULT_SLO = Slo(4.0, 0.1)

_HINTS = st.builds(
    Hints,
    lane_gate_s=st.none() | st.floats(0.1, 5.0),
    fast_weight=st.floats(0.0, 1.0),
    quantum_tokens=st.integers(1, 5000),
    slack_share=st.floats(0.0, 1.0),
)
_REQUEST = st.tuples(
    st.just("push"), st.sampled_from("abc"), st.integers(1, 4000), st.floats(1.0, 500.0), st.floats(0.1, 20.0),
    st.sampled_from([0.5, 1.0, 3.0]), st.integers(-1, 1),
)  # fmt: skip
_PICK = st.integers(0, 40)
_STEP = st.one_of(
    _REQUEST,
    _REQUEST,
    st.tuples(st.just("pop")),
    st.tuples(st.just("remove"), _PICK),
    st.tuples(st.just("annotate"), _PICK, st.floats(1.0, 900.0)),
    st.tuples(st.just("serve"), _PICK, st.floats(0.0, 5000.0)),
    st.tuples(st.just("wait"), st.floats(0.0, 5.0)),
)
_SCRIPT = st.builds(lambda first, then: [*first, *then], st.lists(_REQUEST, max_size=10), st.lists(_STEP, max_size=40))
_each_order = settings(suppress_health_check=[HealthCheck.differing_executors], deadline=None)


def waiting(
    seq: int,
    *,
    tenant: str = "a",
    prompt_tokens: int = 100,
    output_tokens: float = 50.0,
    arrival_s: float | None = None,
    slo: Slo = DEFAULT_SLO,
    weight: float = 1.0,
    priority: int = 0,
) -> QueueEntry:
    """Returns a request that waits: the `seq`-th that came, called r<seq>. `output_tokens` is its predicted median.
    `arrival_s`: on the worker's clock, by default `seq`."""
    at_s = float(seq) if arrival_s is None else arrival_s
    request = Request(
        id=f"r{seq}", model="model", tenant=tenant, flow="", prompt_tokens=prompt_tokens, max_tokens=None, stream=True,
        slo=slo, slo_stated=True, priority=priority, weight=weight, importance=0.75, arrival_s=at_s,
    )  # fmt: skip
    expected = Assumption(output_tokens, 2 * output_tokens, prompt_tokens / 1000, 0.02)
    return QueueEntry(request, attempt=1, gateway="g0", seq=seq, now_s=at_s, estimate=expected)


def tagged(entry: QueueEntry, output_tokens: float) -> QueueEntry:
    """Gives a request that waits the tags and the costs that predictions add to it, and returns it."""
    tags = Tags(
        task=TaskType.QA, slo=entry.request.slo, output_tokens=output_tokens, output_tokens_p90=2 * output_tokens,
        confidence=0.9, source=TagSource.MODEL, version="v1",
    )  # fmt: skip
    cost = Cost(entry.request.prompt_tokens / 500, 0.03)
    entry.annotate(Annotation(tags, (KindCost(EngineKind(), cost),)))
    return entry


def engines_at(now_s: float, cap: int = 64) -> ServiceView:
    """Returns one engine that is up and idle at that instant, and takes `cap` sequences."""
    return ServiceView(now_s, (EngineOccupancy(cap=cap, running=0, kv_tokens=0, kv_free_tokens=0),))


class _Script:
    """Plays a script on an order beside a plain dict of what waits. `served` are those that it gave, by number."""

    def __init__(self, order: PluggedOrder) -> None:
        self.order = order
        self.queued: dict[int, QueueEntry] = {}
        self.running: dict[int, QueueEntry] = {}
        self.served: list[int] = []
        self.now_s = 0.0
        self._seq = 0

    def play(self, script: list[tuple]) -> "_Script":  # type: ignore[type-arg]
        for kind, *values in script:
            getattr(self, f"_{kind}")(*values)
            self.check()
        while self.queued and self.order.peek() is not None:
            self._pop()
            self.check()
        assert not self.queued, f"an idle engine never gets {sorted(self.queued)}"
        return self

    def check(self) -> None:
        assert self.order.fault is None, self.order.fault
        inner = self.order.guarded
        held = sorted(entry.seq for entry in inner)
        assert held == sorted(self.queued), f"it holds {held} where {sorted(self.queued)} wait"
        assert len(inner) == len(self.queued), f"its len is {len(inner)} where {len(self.queued)} wait"

    def _push(self, tenant: str, prompt: int, tokens: float, ttft_s: float, weight: float, priority: int) -> None:
        self._seq += 1
        made = waiting(
            self._seq, tenant=tenant, prompt_tokens=prompt, output_tokens=tokens, arrival_s=self.now_s,
            slo=Slo(ttft_s, 0.1), weight=weight, priority=priority,
        )  # fmt: skip
        self.queued[made.seq] = made
        self.order.push(made)

    def _pop(self) -> None:
        head, popped = self.order.peek(), self.order.pop()
        assert popped is head, "pop must return what peek returned"
        if popped is not None:
            del self.queued[popped.seq]
            self.running[popped.seq] = popped
            self.served.append(popped.seq)

    def _remove(self, pick: int) -> None:
        if (gone := _picked(self.queued, pick)) is not None:
            del self.queued[gone.seq]
            self.order.remove(gone)

    def _annotate(self, pick: int, tokens: float) -> None:
        if (found := _picked(self.queued, pick)) is not None:
            self.order.reannotate(tagged(found, tokens))

    def _serve(self, pick: int, tokens: float) -> None:
        if (found := _picked(self.running, pick)) is not None:
            del self.running[found.seq]
            if self.order.accounts_service:
                self.order.on_served(found, tokens, True)

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        if self.order.paced:
            self.order.observe(engines_at(self.now_s))


class OrderProperties:
    """Subclass it in a test module, with the order's `name` (that of its entry point) and what makes it."""

    name: str
    make: Callable[[Hints], object]

    def order(self, hints: Hints | None = None) -> PluggedOrder:
        """Returns a new order behind the worker's own guard, which notes what it may not do."""
        make: MakeTopology = type(self).make  # type: ignore[assignment]
        return PluggedOrder(TopologyName(self.name), make, hints or Hints())

    def test_it_says_what_it_is(self) -> None:
        order = self.order()
        assert order.fault is None, order.fault
        inner = order.guarded
        assert inner.name == self.name, f"its name is {inner.name}, that of its entry point {self.name}"
        for attribute in ("accounts_service", "paced", "sets_aside", "uses_tags"):
            assert isinstance(getattr(inner, attribute), bool), f"{attribute} must be True or False"

    @_each_order
    @given(_SCRIPT, _HINTS)
    def test_each_request_leaves_once(self, script: list[tuple], hints: Hints) -> None:  # type: ignore[type-arg]
        _Script(self.order(hints)).play(script)

    @_each_order
    @given(_SCRIPT, _HINTS)
    def test_the_same_again_is_the_same(self, script: list[tuple], hints: Hints) -> None:  # type: ignore[type-arg]
        first, again = (_Script(self.order(hints)).play(script).served for _ in range(2))
        assert first == again, "an order reads no clock and draws nothing: a recording could not be replayed"

    @_each_order
    @given(st.lists(_REQUEST, max_size=30))
    def test_what_waited_before_it_came_is_served(self, script: list[tuple]) -> None:  # type: ignore[type-arg]
        before = _Script(self.order())
        for _, *values in script:
            before._push(*values)
        order = self.order()
        order.rebuild(list(before.queued.values()))
        served = [entry.seq for entry in iter(order.pop, None)]
        assert order.fault is None, order.fault
        assert sorted(served) == sorted(before.queued)

    @_each_order
    @given(st.lists(_REQUEST, max_size=30))
    def test_a_copy_serves_the_same(self, script: list[tuple]) -> None:  # type: ignore[type-arg]
        """The console looks at copies."""
        made = _Script(self.order())
        for _, *values in script:
            made._push(*values)
        twin = deepcopy(made.order)
        copied, served = ([entry.seq for entry in iter(order.pop, None)] for order in (twin, made.order))
        assert (twin.fault, made.order.fault) == (None, None)
        assert copied == served

    def test_it_says_why(self) -> None:
        order = self.order()
        for seq in range(5):
            order.push(tagged(waiting(seq), 10.0 * seq) if seq % 2 else waiting(seq))
        while (popped := order.pop()) is not None:
            words = order.guarded.why(popped, 10.0)
            assert isinstance(words, str), f"why returned {words!r}"
            assert 0 < len(words) <= MAX_WHY_CHARS, words

    @_each_order
    @given(st.lists(st.floats(1.0, 2000.0), min_size=2, max_size=20))
    def test_tags_change_it_only_if_it_says_so(self, lengths: list[float]) -> None:
        if self.order().uses_tags:
            return
        plain, told = self.order(), self.order()
        for seq, tokens in enumerate(lengths):
            plain.push(waiting(seq))
            told.push(entry := waiting(seq))
            told.reannotate(tagged(entry, tokens))
        orders = [[entry.seq for entry in iter(order.pop, None)] for order in (plain, told)]
        assert orders[0] == orders[1], "uses_tags must be True: a request would not wait for its tags"

    def test_it_forgets_who_is_gone(self) -> None:
        order, sizes = self.order(), []
        for seq in range(2 * TENANTS):
            order.push(waiting(seq, tenant=f"t{seq}"))
            popped = order.pop()
            assert popped is not None, order.fault
            if order.accounts_service:
                order.on_served(popped, popped.service, True)
            if order.paced and seq % 10 == 0:
                order.observe(engines_at(float(seq)))
            if (seq + 1) % TENANTS == 0:
                sizes.append(_objects(order.guarded))
        assert order.fault is None, order.fault
        assert sizes[1] <= MOST_GROWTH * sizes[0] + 100, f"{TENANTS} tenants that are gone left {sizes[1] - sizes[0]}"


def _picked(entries: dict[int, QueueEntry], pick: int) -> QueueEntry | None:
    return entries[sorted(entries)[pick % len(entries)]] if entries else None


def _objects(root: object) -> int:
    """Returns how many objects an object refers to, in any number of steps; classes, functions and what only these
    know do not count."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, type | ModuleType | FunctionType | BuiltinFunctionType):
            seen[id(each)] = each
            left += get_referents(each)
    return len(seen)
