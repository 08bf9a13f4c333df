"""The linker: which job a request continues, by a script of requests."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.job import NO_CHAIN, LinkedBy, Stage, StageArrived
from hmas.contracts.use import ToldStage
from hmas.gateway.agent.config import LinkingConfig
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.laws.prefix_chain import chain_of_messages, tenant_key

SYSTEM, TASK = ("system", "policy"), ("user", "a task")


class Link:
    """Sends requests to a linker, each with the next id from `r0` on."""

    def __init__(self, **config: Any) -> None:
        self.linker = JobLinker(LinkingConfig(**config))
        self.sent = 0

    def __call__(
        self, *messages: tuple[str, str], tenant: str = "acme", at_s: float = 0.0, declared: str = ""
    ) -> Stage:
        chat = [{"role": role, "content": content} for role, content in messages]
        chain = chain_of_messages(tenant_key(tenant), b"m", chat)
        event = StageArrived(request_id=f"r{self.sent}", tenant=tenant, chain=chain, declared=declared)
        self.sent += 1
        (linked,) = self.linker.step(at_s, event)
        assert linked.request_id == event.request_id
        return linked.stage


def test_a_prompt_that_goes_on_from_a_former_one_is_the_next_stage() -> None:
    link = Link()
    first = link(SYSTEM, TASK)
    second = link(SYSTEM, TASK, ("assistant", "a question"), ("user", "an answer"))
    assert first == Stage(job=first.job, index=0, parent="", linked=LinkedBy.NEW)
    assert second == Stage(job=first.job, index=1, parent="r0", linked=LinkedBy.PREFIX)


def test_the_longest_former_prompt_counts() -> None:
    link = Link()
    short = link(SYSTEM, TASK)
    link(SYSTEM, ("user", "other"))
    two = link(SYSTEM, TASK, ("assistant", "x"), ("user", "y"))
    twin = link(SYSTEM, TASK)
    three = link(SYSTEM, TASK, ("assistant", "x"), ("user", "y"), ("assistant", "z"), ("user", "w"))
    assert short.job == two.job == three.job != twin.job
    assert three.parent == "r2"


def test_of_equal_prompts_the_one_that_waits_longest_is_continued_and_each_once() -> None:
    link = Link()
    one, other = link(SYSTEM, TASK), link(SYSTEM, TASK)
    assert one.job != other.job
    assert link(SYSTEM, TASK, ("assistant", "x"), ("user", "y")).job == one.job
    assert link(SYSTEM, TASK, ("assistant", "u"), ("user", "v")).job == other.job


def test_agents_with_system_prompts_of_their_own_join_by_the_first_message_of_the_user() -> None:
    link = Link()
    first = link(("system", "you plan"), TASK)
    second = link(("system", "you write code"), TASK, ("user", "a plan"))
    third = link(("system", "you plan"), TASK, ("assistant", "a plan"), ("user", "code"))
    assert (second.job, second.parent, second.linked) == (first.job, "r0", LinkedBy.THREAD)
    assert (third.job, third.parent, third.linked) == (first.job, "r1", LinkedBy.PREFIX)


def test_of_jobs_with_the_same_first_message_the_one_with_the_same_second_message_is_joined() -> None:
    link = Link()
    one, other = link(("system", "a"), TASK), link(("system", "b"), TASK)
    link(("system", "a"), TASK, ("user", "one plan"))
    link(("system", "b"), TASK, ("user", "another plan"))
    assert link(("system", "c"), TASK, ("user", "another plan")).job == other.job
    assert link(("system", "c"), TASK, ("user", "one plan"), ("user", "x")).job == one.job


def test_a_job_that_was_silent_for_long_is_not_joined_by_its_first_message() -> None:
    link = Link(silent_s=600.0)
    first = link(("system", "a"), TASK)
    assert link(("system", "b"), TASK, ("user", "x"), at_s=601.0).linked is LinkedBy.NEW
    assert link(("system", "a"), TASK, ("assistant", "x"), at_s=602.0).job == first.job  # its prompt goes on


def test_the_first_message_alone_opens_a_new_job_each_time() -> None:
    link = Link()
    assert link(SYSTEM, TASK).job != link(SYSTEM, TASK).job


def test_gateways_give_the_same_id_without_knowing_of_one_another() -> None:
    opened = Link()(SYSTEM, TASK)
    continued = Link()(SYSTEM, TASK, ("assistant", "x"), ("user", "y"))
    assert opened.job == continued.job
    assert len(opened.job) == 16


def test_nothing_is_linked_across_tenants() -> None:
    link = Link()
    first = link(SYSTEM, TASK)
    other = link(SYSTEM, TASK, ("assistant", "x"), ("user", "y"), tenant="globex")
    assert other.job != first.job
    assert other.linked is LinkedBy.NEW
    named = link(SYSTEM, TASK, declared="job 7")
    assert link(SYSTEM, TASK, tenant="globex", declared="job 7").job != named.job


def test_a_chain_of_another_tenant_is_not_believed() -> None:
    linker = JobLinker()
    chat = [{"role": "user", "content": "a task"}]
    chain = chain_of_messages(tenant_key("acme"), b"m", chat)
    longer = chain_of_messages(tenant_key("acme"), b"m", [*chat, {"role": "assistant", "content": "x"}])
    linker.step(0.0, StageArrived(request_id="a", tenant="acme", chain=chain))
    (linked,) = linker.step(0.0, StageArrived(request_id="b", tenant="globex", chain=longer))
    assert linked.stage.linked is LinkedBy.NEW


def test_a_named_job_counts_more_than_the_prompt() -> None:
    link = Link()
    link(SYSTEM, TASK)
    first = link(SYSTEM, TASK, ("assistant", "x"), declared="job 7")
    second = link(("user", "something else"), declared="job 7")
    assert (first.linked, first.index) == (LinkedBy.DECLARED, 0)
    assert (second.job, second.index, second.parent) == (first.job, 1, "r1")


def test_a_request_without_a_chain_is_a_job_of_its_own() -> None:
    linker = JobLinker()
    found = [linker.step(0.0, StageArrived(request_id=f"r{i}", tenant="t", chain=NO_CHAIN))[0] for i in range(2)]
    assert found[0].stage.job != found[1].stage.job


@pytest.mark.parametrize("kind", ["jobs", "one thread", "declared"])
def test_the_tables_are_bounded(kind: str) -> None:
    link = Link(max_jobs=100, max_ends=50, max_alike=4)
    for i in range(2_000):
        task = ("user", "a task" if kind == "one thread" else f"task {i}")
        link(SYSTEM, task, ("assistant", str(i)), declared=f"job {i}" if kind == "declared" else "")
        link(SYSTEM, task)
    linker = link.linker
    assert len(linker) <= 150
    assert sum(map(len, linker._threads.values())) <= 100
    assert all(len(ends) <= 4 for ends in linker._ends.values())


def test_gateways_that_tell_one_another_keep_jobs_with_equal_first_messages_apart() -> None:
    one, other = Link(), Link()
    first = one(SYSTEM, TASK)
    other.linker.hear(1.0, one.linker.report(1.0))
    twin = other(SYSTEM, TASK, at_s=1.1)
    assert twin.job != first.job
    one.linker.hear(2.0, other.linker.report(2.0))
    told = (("assistant", "x"), ("user", "y"))
    second = other(SYSTEM, TASK, *told, at_s=3.0)
    assert (second.job, second.index, second.parent, second.linked) == (first.job, 1, "r0", LinkedBy.PREFIX)
    one.linker.hear(4.0, other.linker.report(4.0))
    assert one(SYSTEM, TASK, ("assistant", "u"), ("user", "v"), at_s=5.0).job == twin.job  # the first went on elsewhere
    assert one(SYSTEM, TASK, *told, ("assistant", "z"), ("user", "w"), at_s=5.0).job == first.job


def test_what_is_told_is_told_once_a_second_and_old_news_change_nothing() -> None:
    one, other = Link(), Link()
    one(SYSTEM, TASK)
    early = one.linker.report(0.0)
    assert one.linker.report(0.5) == ()
    one(SYSTEM, TASK, ("assistant", "x"), ("user", "y"), at_s=0.6)
    assert one.linker.report(0.9) == ()
    (late,) = one.linker.report(1.0)
    assert (late.stages, late.request_id) == (2, "r1")
    assert one.linker.report(3.0) == ()
    other.linker.hear(1.0, [late])
    other.linker.hear(1.0, early)
    third = other(SYSTEM, TASK, ("assistant", "x"), ("user", "y"), ("assistant", "z"), ("user", "w"), at_s=2.0)
    assert (third.index, third.parent) == (2, "r1")


def test_a_job_that_another_gateway_told_of_is_joined_by_its_first_message_and_never_across_tenants() -> None:
    one, other = Link(), Link()
    first = one(("system", "you plan"), TASK)
    other.linker.hear(1.0, one.linker.report(1.0))
    foreign = other(("system", "you write code"), TASK, ("user", "a plan"), tenant="globex", at_s=2.0)
    assert (foreign.linked, foreign.parent) == (LinkedBy.NEW, "")
    assert other(SYSTEM, TASK, ("assistant", "x"), ("user", "y"), tenant="globex", at_s=2.0).job != first.job
    second = other(("system", "you write code"), TASK, ("user", "a plan"), at_s=2.0)
    assert (second.job, second.linked) == (first.job, LinkedBy.THREAD)


def test_what_is_heard_is_bounded_too() -> None:
    link = Link(max_jobs=3, max_ends=3, max_alike=2, max_told=2)
    told = [
        ToldStage(job=f"{n:016x}", node=n + 1, thread=7 if n % 2 else n + 100, turn=0, stages=1, request_id="r")
        for n in range(50)
    ]
    link.linker.hear(0.0, told)
    assert len(link.linker) <= 6
    for n in range(5):
        link(SYSTEM, ("user", f"task {n}"))
    assert len(link.linker.report(1.0)) == 2


def test_of_too_many_stages_the_last_are_told() -> None:
    link = Link(max_told=2)
    jobs = [link(("user", f"task {i}")).job for i in range(3)]
    link(("user", "task 0"), ("assistant", "x"), ("user", "y"))
    assert [(told.job, told.stages) for told in link.linker.report(1.0)] == [(jobs[2], 1), (jobs[0], 2)]


def test_a_turn_that_one_gateway_knows_is_kept_where_another_does_not() -> None:
    """A job is joined by the second message that any gateway has seen, not by what came last."""
    link = Link()
    opened = link(("system", "a"), TASK)
    told = ToldStage(job=opened.job, node=0, thread=0, turn=0, stages=2, request_id="far")
    (first,) = link.linker.report(1.0)
    assert first.turn == 0
    link.linker.hear(1.0, [replace(told, turn=77)])
    link.linker.hear(2.0, [replace(told, stages=3, turn=5)])
    link(("system", "a"), TASK, ("assistant", "x"), at_s=3.0)
    (later,) = link.linker.report(9.0)
    assert (later.job, later.turn) == (opened.job, 77)
