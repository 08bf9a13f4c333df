"""Gateway agents, worker agents and engines together: the rules of the short path hold, whatever happens."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.outcome import Outcome
from tests.conftest import examples
from tests.shortpath.parts import Setting
from tests.shortpath.world import Agents, World

# How often each thing happens. Those of the second kind disturb: they break what the bound of N_run relies on.
CALM = {"ask": 8, "leave": 2, "annotate": 1, "wait": 1}
ROUGH = {
    "cut": 2, "stall": 2, "repeat": 2, "freeze": 3, "catch": 4, "part": 3, "restart": 3, "crash": 2, "hang": 1,
    "busy": 1, "fail": 2, "refuse": 1, "drop": 1, "flap": 1, "unreach": 1, "drain": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Action:
    """What happens, to which of those it can happen to (`pick`, modulo their number), how much, for how many ticks, and
    the ticks that pass afterwards."""

    kind: str
    pick: int
    much: int
    ticks: int
    after: int


Script = tuple[Setting, list[Action]]


def _weighted(kinds: dict[str, int]) -> st.SearchStrategy[str]:
    return st.sampled_from([kind for kind, weight in kinds.items() for _ in range(weight)])


@st.composite
def scripts(draw: st.DrawFn, rough: bool = True, split: bool | None = None, at_once: bool | None = None) -> Script:
    workers = draw(st.integers(1, 2))
    engines = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    setting = Setting(
        gateways=draw(st.integers(1, 2)),
        engines=tuple((n % workers, cap) for n, cap in enumerate(engines)),
        uncounted=frozenset({1} if draw(st.integers(0, 5)) == 5 else ()),
        split=draw(st.booleans()) if split is None else split,
        at_once=draw(st.booleans()) if at_once is None else at_once,
        seed=draw(st.integers(0, 1000)),
    )
    action = st.builds(
        Action,
        kind=_weighted(CALM | ROUGH if rough else CALM),
        pick=st.integers(0, 11),
        much=st.integers(1, 6),
        ticks=st.sampled_from((1, 4, 12, 22, 30, 36, 50, 90)),
        after=st.sampled_from((0, 1, 1, 2, 3, 5, 10, 20)),
    )
    return setting, draw(st.lists(action, min_size=8, max_size=30))


def play(script: Script, agents: Agents | None = None) -> World:
    """Plays a script to its end. Raises Violation at the first broken rule."""
    setting, actions = script
    world = World(setting, agents)
    for _ in range(30):  # heartbeats, streams, first samples
        world.turn()
    for action in actions:
        act(world, action)
        for _ in range(action.after):
            world.turn()
    world.finish()
    return world


def ask(world: World, action: Action, gateway: str) -> None:
    for n in range(action.much):
        tokens = 1 + (7 * n + action.ticks) % 60
        world.ask(gateway, tokens=tokens, first=1 + n % 4, stream=(action.pick + n) % 4 > 0)


def act(world: World, action: Action) -> None:
    pick, much, ticks = action.pick, action.much, action.ticks
    engines, links = list(world.engines.values()), list(world.links.values())
    engine, link = engines[pick % len(engines)], links[pick % len(links)]
    gateways, workers = list(world.gateways), list(world.workers)
    processes = [*gateways, *workers]
    gateway, process = gateways[pick % len(gateways)], processes[pick % len(processes)]
    world.disturbed |= action.kind in ROUGH
    match action.kind:
        case "ask":
            ask(world, action, gateway)
        case "leave":
            world.leave(pick)
        case "annotate":
            world.annotate(pick)
        case "cut":
            world.cut(link)
        case "stall":
            world.stall(link, ticks, to_worker=much % 3 != 0, to_gateway=much % 3 != 1)
        case "repeat":
            world.repeat(link, 4 * ticks)
        case "freeze":
            world.freeze(process, ticks)
        case "catch":  # grants are on their way when their gateway freezes, or its stream stalls
            ask(world, action, gateway)
            for _ in range(2 + pick % 4):
                world.turn()
            if much % 2:
                world.freeze(gateway, ticks)
            for (name, _), its in world.links.items():
                if name == gateway and not much % 2:
                    world.stall(its, ticks, to_worker=pick % 2 > 0, to_gateway=pick % 2 == 0)
        case "part":  # a gateway is without its worker for long, and all have work
            for name in gateways:
                ask(world, action, name)
            world.stall(link, 40 + ticks, to_worker=True, to_gateway=True)
        case "restart":
            world.restart(process, ticks)
        case "crash":
            world.crash(engine, ticks)
        case "hang":
            engine.hung_until = world.tick + ticks
        case "busy":
            engine.busy_until = world.tick + ticks
        case "fail":
            engine.failing += much
        case "refuse":
            engine.refusing += 1
        case "drop":
            engine.dropping += 1
        case "flap":
            world.flap(engine, ticks)
        case "unreach":
            engine.unreached[gateway] = world.tick + ticks
        case "drain":
            world.drain(workers[pick % len(workers)])
        case _:
            assert action.kind == "wait"


@settings(max_examples=examples(30))
@given(scripts(rough=False))
def test_undisturbed(script: Script) -> None:
    world = play(script)
    assert set(world.outcomes.values()) <= {Outcome.FINISHED, Outcome.CANCELLED}
    assert world.bypassed == 0
    assert not any(run.excused for run in world.runs.values())


@settings(max_examples=examples(60))
@given(scripts(split=False))
def test_whatever_happens(script: Script) -> None:
    play(script)


@settings(max_examples=examples(60))
@given(scripts(split=True, at_once=False))
def test_whatever_happens_to_requests_of_two_engines(script: Script) -> None:
    play(script)


@settings(max_examples=examples(60))
@given(scripts(split=True, at_once=True))
def test_whatever_happens_to_requests_that_two_engines_get_at_once(script: Script) -> None:
    play(script)
