"""What the console sends when an operator orders something about the plan, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi import HTTPException

from hmas.console import shell
from hmas.console.plan_orders import PlanAct, PlanOrder, told_plan
from hmas.console.shell import ConsoleShell
from hmas.contracts.pool_plan import PlanDecision, PlanPin
from hmas.runtime.bucket import BucketUnavailable
from hmas.runtime.bus import Bus
from hmas.runtime.settings import RuntimeSettings
from tests.console.test_plan_page import PLAN

SEEN = told_plan(PLAN)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[PlanPin]:
    """The pins that were stored."""
    found: list[PlanPin] = []

    async def store(bus: Bus, bucket: Any, pin: PlanPin) -> None:
        found.append(pin)

    monkeypatch.setattr(shell, "store_pin", store)
    return found


def console(plan: PlanDecision | None = PLAN) -> ConsoleShell:
    made = ConsoleShell(Bus(RuntimeSettings(), "console"), "console")
    if plan is not None:
        made.state.hear(1.0, plan)
    return made


async def refused(of: ConsoleShell, act: PlanAct, seen: str = SEEN) -> tuple[int, str]:
    with pytest.raises(HTTPException) as caught:
        await of.order_plan(PlanOrder(act=act, seen=seen))
    return caught.value.status_code, str(caught.value.detail)


async def test_orders_pin_the_plan_or_what_ran_before_it_or_lift_the_pin(kept: list[PlanPin]) -> None:
    for act in PlanAct:
        await console().order_plan(PlanOrder(act=act, seen=SEEN))
    assert kept == [PlanPin(plans=plans, by="the console") for plans in (PLAN.plans, PLAN.before, ())]


async def test_an_order_for_a_plan_that_has_changed_meanwhile_is_refused(kept: list[PlanPin]) -> None:
    changed = console(replace(PLAN, plans=PLAN.before, before=PLAN.plans))
    for act in (PlanAct.APPLY, PlanAct.ROLL_BACK):
        assert await refused(changed, act) == (409, "the plan has changed meanwhile: look again")
    assert kept == []
    await changed.order_plan(PlanOrder(act=PlanAct.LIFT, seen=SEEN))
    assert kept == [PlanPin(plans=(), by="the console")]


async def test_an_order_that_would_change_nothing_is_refused_in_words(kept: list[PlanPin]) -> None:
    assert await refused(console(None), PlanAct.APPLY) == (404, "no plan was heard of")
    for plan, act, words in (
        (replace(PLAN, acts="advise"), PlanAct.ROLL_BACK, "HMAS_PLAN=advise"),
        (replace(PLAN, selector="pin"), PlanAct.APPLY, "in force already"),
        (replace(PLAN, before=()), PlanAct.ROLL_BACK, "nothing else is known"),
    ):
        status, told = await refused(console(plan), act, told_plan(plan))
        assert (status, words in told) == (409, True)
    assert kept == []


async def test_a_pin_that_cannot_be_kept_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def store(bus: Bus, bucket: Any, pin: PlanPin) -> None:
        raise BucketUnavailable("no NATS")

    monkeypatch.setattr(shell, "store_pin", store)
    assert await refused(console(), PlanAct.APPLY) == (503, "the pin cannot be kept: no NATS")
