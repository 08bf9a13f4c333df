"""A refused request that comes back when it was told to finds a place."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from hmas.contracts.execution import Refusal, Submit
from hmas.contracts.gateway import (
    FromWorker,
    GatewayEffect,
    GatewayTicked,
    PublishGatewayTelemetry,
    RequestReceived,
    Settle,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.use import ToldPromise
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.admission.promises import Promises
from hmas.gateway.agent.config import GatewayConfig, PromiseConfig
from hmas.gateway.tenants.keys import make_key
from tests.gateway.gateway_harness import PATH, body, client, gateway
from tests.gateway.gateway_script import heartbeat, request

CONFIG = GatewayConfig(gateway="g", promises=PromiseConfig(max_promises=100))


def test_a_promise_holds_from_its_time_on_for_a_while_and_once() -> None:
    promises = Promises(CONFIG)
    assert promises.make(10.0, "a", 5.0) == 5.0
    assert not promises.redeem(14.9, "a")  # too early, and no reason to break it
    assert promises.redeem(15.0, "a")
    assert not promises.redeem(15.0, "a")
    promises.make(20.0, "a", 5.0)
    assert not promises.redeem(25.1 + CONFIG.promises.kept_s, "a")
    assert not promises.redeem(25.0, "b")


def test_who_comes_too_early_and_is_refused_again_keeps_the_earlier_time() -> None:
    promises = Promises(CONFIG)
    promises.make(0.0, "a", 10.0)
    assert promises.make(4.0, "a", 20.0) == 6.0
    assert promises.make(5.0, "a", 2.0) == 2.0
    assert promises.make(60.0, "a", 3.0) == 3.0  # the old one is over


def test_as_many_promises_are_kept_as_there_is_room_for() -> None:
    promises = Promises(CONFIG)
    for number in range(CONFIG.promises.max_promises + 1):
        promises.make(0.0, f"{number}", 1.0)
    assert len(promises) == CONFIG.promises.max_promises
    assert not promises.redeem(1.0, "0")
    assert promises.redeem(1.0, "1")


@dataclass
class Asked:
    """An agent that one client asks the same again and again."""

    agent: GatewayAgent
    number: int = 0

    def ask(self, now_s: float, content: str) -> list[GatewayEffect]:
        self.number += 1
        made = replace(request(f"r{self.number}", arrival_s=now_s), relegate=not content)
        return self.agent.step(now_s, RequestReceived(made, content))

    def refuse(self, now_s: float, wait_s: float) -> float | None:
        refusal = Refusal(
            request_id=f"r{self.number}", attempt=1, outcome=Outcome.SLO_UNREACHABLE, message="", retry_after_s=wait_s
        )
        settles = [e for e in self.agent.step(now_s, FromWorker("w1", refusal)) if isinstance(e, Settle)]
        return settles[0].retry_after_s


def promised(effects: list[GatewayEffect]) -> bool:
    """Whether the one submission says so."""
    (effect,) = effects
    assert isinstance(effect, ToWorker)
    assert isinstance(effect.message, Submit)
    return effect.message.promised


def asked(**limits: int) -> Asked:
    agent = GatewayAgent(GatewayConfig(gateway="g"))
    agent.step(0.0, HeartbeatReceived(heartbeat("w1")))
    agent.step(0.0, StreamChanged("w1", True))
    agent.step(0.0, TenantsChanged((TenantLimits(tenant="acme", **limits),)))
    return Asked(agent)


def test_the_worker_is_told_who_was_promised_a_place() -> None:
    client = asked()
    assert promised(client.ask(0.0, "x")) is False
    assert client.refuse(1.0, 4.0) == 4.0
    assert promised(client.ask(3.0, "x")) is False
    assert client.refuse(3.0, 30.0) == 2.0
    assert promised(client.ask(5.0, "y")) is False
    assert promised(client.ask(5.0, "x")) is True


def test_telemetry_tells_which_requests_came_back_when_they_were_told_to() -> None:
    client = asked()
    client.ask(0.0, "x")
    client.refuse(0.0, 4.0)
    client.ask(5.0, "x")
    client.refuse(5.0, 4.0)
    told = [e.telemetry for e in client.agent.step(9.0, GatewayTicked()) if isinstance(e, PublishGatewayTelemetry)]
    assert [(s.request_id, s.promised) for batch in told for s in batch.settled] == [("r1", False), ("r2", True)]


def test_a_bound_of_the_tenant_leaves_the_promise_as_it_is() -> None:
    client = asked(max_in_flight=1)
    client.ask(0.0, "x")
    client.refuse(0.0, 1.0)
    client.ask(1.0, "y")
    (refused,) = client.ask(1.0, "x")
    assert not isinstance(refused, ToWorker)
    client.number = 2
    client.refuse(1.5, 1.0)
    client.number = 3
    assert promised(client.ask(2.0, "x")) is True


RETRY_S = 0.01


async def test_the_same_body_of_the_same_tenant_is_the_same_request(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    refusing = "".join(f"  {name}:\n    on_miss: refuse\n" for name in ("one", "two"))
    file.write_text(f"tenants:\n{refusing}  patient:\n    weight: 1\n", encoding="utf-8")
    keys = {name: make_key(file, name).key for name in ("one", "two", "patient")}
    async with gateway(grants=False, tenants_file=file) as g, client(g) as http:

        async def ask(tenant: str, **fields: object) -> bool:
            headers = {"authorization": f"Bearer {keys[tenant]}"}
            before = len(g.workers.submits)
            asking = asyncio.create_task(http.post(PATH, content=body(**fields), headers=headers))
            await g.until(lambda: len(g.workers.submits) > before)
            worker, submit = g.workers.submits[-1]
            refusal = Refusal(
                request_id=submit.request.id, attempt=1, outcome=Outcome.SLO_UNREACHABLE, message="full",
                retry_after_s=RETRY_S,
            )  # fmt: skip
            g.workers.say(worker, refusal)
            response = await asking
            assert response.status_code == 429
            assert response.headers["retry-after"] == "1"
            return submit.promised

        assert not await ask("one")
        assert not await ask("two")
        assert not await ask("one", temperature=0.5)
        assert not await ask("patient")
        assert not await ask("patient")  # does not mind a late answer
        await asyncio.sleep(RETRY_S)
        assert await ask("one")
        assert await ask("two")


def test_promises_by_their_instants() -> None:
    config = replace(CONFIG, promises=PromiseConfig(max_promises=2, kept_s=10.0))
    promises = Promises(config)
    assert not promises.changed
    assert promises.make(0.0, "a", 5.0) == 5.0
    assert promises.changed
    assert promises.make(2.0, "a", 9.0) == 3.0, "it keeps the earlier time"
    assert promises.make(5.0, "a", 9.0) == 0.0, "also at that very instant"
    assert promises.make(6.0, "a", 2.0) == 2.0, "the time told has passed"
    assert promises.make(6.0, "a", 1.0) == 1.0, "an earlier one replaces it"
    assert not promises.redeem(6.75, "a")
    assert promises.redeem(7.0, "a")
    assert not promises.redeem(7.0, "a")
    assert promises.report(7.0) == ((), ("a",))
    assert not promises.changed
    promises.make(10.0, "late", 0.0)
    assert promises.redeem(20.0, "late")
    promises.make(10.0, "late", 0.0)
    assert not promises.redeem(20.25, "late")
    assert len(promises) == 0
    for content in "xyz":
        promises.make(30.0, content, 1.0)
    assert not promises.redeem(31.0, "x"), "of too many the oldest is forgotten"
    assert promises.redeem(31.0, "y")
    made, redeemed = promises.report(31.0)
    assert [(each.content, each.due_s) for each in made] == [("x", 0.0), ("z", 0.0)]
    assert redeemed == ("late", "y")
    promises.hear(40.0, (ToldPromise(content="far", due_s=2.0),), ())
    assert not promises.changed
    assert not promises.redeem(41.75, "far")
    assert promises.redeem(42.0, "far")
    promises.hear(50.0, (ToldPromise(content="far", due_s=0.0),), ())
    promises.hear(50.0, (), ("far", "unknown"))
    assert not promises.redeem(50.0, "far"), "it was used up elsewhere"
