"""Split requests at the gateway: it carries each from the engine that computes the prompt to the one that answers."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Adopt, Ended, EngineShare, FirstToken, Prefilled, Proceed
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    GoOn,
    PromptComputed,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent import GatewayConfig
from hmas.gateway.agent.config import LegConfig
from tests.gateway.gateway_script import Mesh, fails, grant, heartbeat, load, request

LEGS = LegConfig()


class Split(Mesh):
    """A gateway with a request that worker w1 has granted on e1, with p computing its prompt."""

    def __init__(self, config: GatewayConfig | None = None, *, at_once: bool = False) -> None:
        super().__init__("w1", config=config)
        self.port = 8998 if at_once else 0
        self.run = self.begin("r1", 1)

    def begin(self, request_id: str, number: int, **request: Any) -> int:
        self.receive(request_id, **request)
        given = replace(grant(request_id, number), prefill="p", bootstrap_port=self.port)
        start, _ = self.play(FromWorker("w1", given))
        assert isinstance(start, StartRun)
        return start.run

    def computed(self, wait_s: float = 0.1, cached: int | None = 5) -> list[GatewayEffect]:
        self.now_s += wait_s
        return self.play(PromptComputed("r1", self.run, cached))

    def word(self, engine: str = "e1", number: int = 1, due_in_s: float | None = None) -> list[GatewayEffect]:
        return self.play(FromWorker("w1", Proceed("r1", number, engine, due_in_s)))


def ended(effects: list[GatewayEffect]) -> list[Ended]:
    return [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Ended)]


def test_a_prompt_that_is_computed_goes_on_where_the_worker_says() -> None:
    mesh = Split()
    assert mesh.computed() == [ToWorker("w1", Prefilled("r1", 1, 5))]
    assert mesh.word("e2", due_in_s=0.7) == [GoOn("r1", mesh.run, "w1", "e2", 0.7)]
    assert [mesh.agent._state.ledger.running_on(("w1", name)) for name in ("e1", "e2")] == [0, 1]
    assert mesh.play(FirstTokenRelayed("r1", mesh.run)) == [ToWorker("w1", FirstToken("r1", 1))]


@pytest.mark.parametrize("number", [1, 2])
def test_a_word_goes_for_one_grant_and_once(number: int) -> None:
    mesh = Split()
    assert mesh.word() == []  # the prompt is not computed
    mesh.computed()
    assert mesh.computed() == []
    assert len(mesh.word(number=number)) == (number == 1)
    assert mesh.word(number=2) == []
    assert len(mesh.word()) == (number == 2)
    assert mesh.word() == []


def test_without_a_word_a_request_goes_on_as_it_was_granted() -> None:
    mesh = Split()
    mesh.computed()
    assert mesh.tick(LEGS.word_s - 0.01) == []
    assert mesh.tick(0.02) == [GoOn("r1", mesh.run, "w1", "e1")]
    assert mesh.tick(0.3) == []
    assert mesh.word() == []


def test_without_its_worker_a_request_goes_on_at_once() -> None:
    mesh = Split()
    mesh.play(StreamChanged("w1", False))
    assert mesh.computed() == [GoOn("r1", mesh.run, "w1", "e1")]


def test_a_prompt_that_takes_far_longer_than_others_is_given_up_at_its_engine() -> None:
    """Others took a tenth of a second, so that two seconds are allowed."""
    mesh = Split()
    mesh.computed()
    mesh.word()
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    second = mesh.begin("r2", 2)
    assert mesh.tick(LEGS.least_s - 0.1) == []
    stop, told = mesh.tick(0.2)
    assert isinstance(stop, StopRun)
    assert (stop.request_id, stop.run) == ("r2", second)
    assert [(each.at_prefill, each.stalled, each.retryable) for each in ended([told])] == [(True, True, True)]


def test_a_prompt_whose_time_is_not_known_has_longer() -> None:
    mesh = Split()
    assert mesh.tick(LEGS.unknown_s - 0.1) == []
    assert len(mesh.tick(0.2)) == 2


def test_a_hand_over_is_given_up_by_what_others_took() -> None:
    mesh = Split()
    mesh.computed()
    mesh.word()
    mesh.now_s += 0.1
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    second = mesh.begin("r2", 2)
    mesh.play(PromptComputed("r2", second), FromWorker("w1", Proceed("r2", 2, "e1")))
    assert mesh.tick(LEGS.least_s - 0.1) == []
    assert len(mesh.tick(0.2)) == 2


@pytest.mark.parametrize(
    ("still", "answers", "at_prefill"),
    [(True, True, False), (True, False, True), (False, True, True), (None, True, True)],
)
def test_a_hand_over_that_hangs_is_the_fault_of_the_reader_if_its_answers_stand_still_too(
    still: bool | None, answers: bool, at_prefill: bool
) -> None:
    mesh = Split()
    if answers:
        mesh.receive("r2")
        start, _ = mesh.play(FromWorker("w1", grant("r2", 2)))
        assert isinstance(start, StartRun)
        mesh.play(FirstTokenRelayed("r2", start.run))
    mesh.computed()
    mesh.word()
    mesh.play(FromWorker("w1", load(EngineShare("e1", 8, None if still is None else not still))))
    mesh.now_s += LEGS.unknown_s + 0.1
    assert [each.at_prefill for each in ended(mesh.tick())] == [at_prefill]


def test_an_engine_that_goes_on_computing_prompts_is_given_longer() -> None:
    """A prompt waits there for others. Only if it waits far longer than they all did, it is lost."""
    mesh = Split()
    mesh.computed()
    mesh.word()
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    lost_run = mesh.begin("r2", 2)
    begun_s, lost = mesh.now_s, []
    for number in range(3, 13):
        run = mesh.begin(f"r{number}", number)
        mesh.now_s += 0.1
        mesh.play(PromptComputed(f"r{number}", run), FromWorker("w1", Proceed(f"r{number}", number, "e1")))
        mesh.play(FirstTokenRelayed(f"r{number}", run))
        lost += [(each.run, mesh.now_s - begun_s) for each in mesh.tick(0.9) if isinstance(each, StopRun)]
    [(run, after_s)] = lost
    assert run == lost_run
    assert LEGS.starved * LEGS.least_s < after_s < LEGS.starved * LEGS.least_s + 1.1


def test_a_prompt_may_take_what_those_beside_it_take() -> None:
    mesh = Split()
    mesh.computed(1.0)
    tokens = request("r1").prompt_tokens
    mesh.begin("r2", 2, prompt_tokens=4 * tokens)
    mesh.begin("r3", 3, prompt_tokens=1)
    assert not [e for e in mesh.tick(4 * LEGS.factor - 0.1) if isinstance(e, StopRun)]
    assert len([e for e in mesh.tick(0.4 * LEGS.factor) if isinstance(e, StopRun)]) == 2


@pytest.mark.parametrize("shown", [False, True])
def test_an_answer_that_is_not_streamed_is_given_up_where_another_request_shows_why(shown: bool) -> None:
    """When its prompt was read cannot be seen, and an answer may be long."""
    mesh = Split()
    mesh.computed()
    mesh.word()
    mesh.now_s += 0.1
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    second = mesh.begin("r2", 2, stream=False)
    mesh.play(PromptComputed("r2", second), FromWorker("w1", Proceed("r2", 2, "e1")))
    if shown:
        mesh.begin("r3", 3)
    mesh.now_s += LEGS.least_s + 0.1
    assert {each.request_id for each in mesh.tick() if isinstance(each, StopRun)} == ({"r2", "r3"} if shown else set())


def test_a_word_for_a_run_before_changes_nothing() -> None:
    """The first run failed; the request was granted anew, whole."""
    mesh = Split()
    mesh.computed()
    mesh.play(fails(run=mesh.run, at_prefill=True))
    mesh.play(FromWorker("w1", grant("r1", 2)))
    assert mesh.word() == []
    assert mesh.word(number=2) == []
    assert mesh.tick(0.3) == []


@pytest.mark.parametrize("prefilled", [False, True])
def test_a_worker_that_comes_back_hears_how_far_it_has_got(prefilled: bool) -> None:
    mesh = Split()
    if prefilled:
        mesh.computed()
    mesh.play(StreamChanged("w1", False))
    effects = mesh.play(StreamChanged("w1", True))
    [adopt] = [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Adopt)]
    assert (adopt.engine, adopt.prefill, adopt.prefilled) == ("e1", "p", prefilled)


# --- both engines get the request at once


def test_what_both_have_goes_on_nowhere() -> None:
    mesh = Split(at_once=True)
    assert mesh.computed() == [ToWorker("w1", Prefilled("r1", 1, 5))]
    assert mesh.computed() == []
    assert mesh.word("e2") == mesh.tick(LEGS.word_s + 0.1) == []
    assert mesh.play(FirstTokenRelayed("r1", mesh.run)) == [ToWorker("w1", FirstToken("r1", 1))]


def test_without_its_worker_what_both_have_goes_on_by_itself() -> None:
    mesh = Split(at_once=True)
    mesh.play(StreamChanged("w1", False))
    assert mesh.computed() == []
    assert mesh.play(FirstTokenRelayed("r1", mesh.run)) == []


def test_a_first_token_may_come_before_the_other_answer_ends() -> None:
    mesh = Split(at_once=True)
    assert mesh.play(FirstTokenRelayed("r1", mesh.run)) == [ToWorker("w1", FirstToken("r1", 1))]
    assert mesh.computed() == []


@pytest.mark.parametrize("computed", [False, True])
def test_a_pair_that_gives_no_token_is_given_up(computed: bool) -> None:
    """Others took a tenth of a second for the prompt and the token."""
    mesh = Split(at_once=True)
    mesh.computed()
    mesh.now_s += 0.1
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    second = mesh.begin("r2", 2)
    if computed:
        mesh.play(PromptComputed("r2", second))
    assert mesh.tick(LEGS.least_s - 0.1) == []
    stop, told = mesh.tick(0.2)
    assert isinstance(stop, StopRun)
    assert ("hand the prompt over" in stop.stalled) is computed
    assert [(each.at_prefill, each.retryable) for each in ended([told])] == [(True, True)]


def test_a_token_without_the_other_answers_end_says_how_long_prompts_take() -> None:
    """It says nothing of how long reading takes, which is not known then."""
    mesh = Split(at_once=True)
    mesh.now_s += 0.1
    mesh.play(FirstTokenRelayed("r1", mesh.run))
    second = mesh.begin("r2", 2)
    mesh.play(PromptComputed("r2", second))
    assert mesh.tick(LEGS.least_s + 0.1) == []
    mesh.begin("r3", 3)
    assert len([e for e in mesh.tick(LEGS.least_s + 0.1) if isinstance(e, StopRun)]) == 1


def test_a_gateway_alone_gives_nothing_to_engines_that_need_a_partner() -> None:
    """Either would refuse what it gets, as if it were the client's fault."""
    beat = heartbeat("w1")
    [whole] = beat.engines
    halves = [replace(whole, engine=role, kv="sglang", role=role, endpoint=role) for role in ("prefill", "decode")]
    for engines, starts in ((halves, 0), ([*halves, whole], 1)):
        mesh = Mesh("w1")
        mesh.play(HeartbeatReceived(replace(beat, engines=tuple(engines))))
        mesh.receive("r1")
        effects = [*mesh.play(StreamChanged("w1", False, 2.0)), *mesh.tick(2.0)]
        assert len([e for e in effects if isinstance(e, StartRun)]) == starts
