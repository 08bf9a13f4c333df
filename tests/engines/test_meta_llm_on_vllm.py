"""The meta controller asks the model of a real vLLM within its JSON schema: a model of random
weights answers with something that parses, and what it proposes is rehearsed."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import openai
import pytest

from hmas.contracts.control import INITIAL_TOPOLOGY, AuditRecord, Hints
from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.past import PastBlock
from hmas.meta.agent.config import MetaConfig, RehearsalConfig
from hmas.meta.agent.selectors.llm import NOTHING, RESPONSE_SCHEMA, Rejection, build_messages, parse_answer
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.llm_client import MAX_ANSWER_TOKENS
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.scripted_llm import SimulatedModel
from hmas_lab.sim.systems import NOISY
from tests.e2e.audits import Audits
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.through_the_mesh import PATIENCE_S
from tests.engines.vllm_server import VllmServer
from tests.meta.selectors.test_rules_selector import CALM
from tests.sim.sim_cases import SMALL, random_workload

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
# JSON may hold any number of blanks, and a model of random weights writes them until it is cut.
NO_BLANKS = '{"backend": "guidance", "disable_any_whitespace": true}'


@pytest.fixture(scope="module")
def engine(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(
        environment, tmp_path_factory.mktemp("vllm-llm"), "--max-num-seqs", "8", "--max-model-len", "16384",
        "--structured-outputs-config", NO_BLANKS, scheduler="",
    )  # fmt: skip
    with started(server):
        yield server


@pytest.fixture(scope="module")
def mesh(engine: VllmServer, tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    env = {"HMAS_META_PERIOD_S": "5", "HMAS_MIN_DWELL_S": "0", "HMAS_REHEARSE": "on", "HMAS_SELECTOR": "llm",
           "HMAS_LLM_TIMEOUT_S": "60"}  # fmt: skip
    llm = ("--llm-url", f"{engine.url}/v1", "--llm-model", MODEL)
    args = ("--engine", engine.url, "--max-num-seqs", "8", *llm)
    with start_mesh(tmp_path_factory.mktemp("mesh"), *args, env=env) as running:
        yield running


async def test_each_answer_of_a_model_of_random_weights_parses_and_is_rehearsed(
    mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At temperatures up to 2, so that the answers differ. Then they are those of a simulated mesh's model."""
    schema: Any = {"type": "json_schema", "json_schema": RESPONSE_SCHEMA}
    messages: Any = build_messages(CALM, INITIAL_TOPOLOGY, Hints())
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", max_retries=0, timeout=PATIENCE_S) as client:

        async def ask(seed: int) -> str:
            answer = await client.chat.completions.create(
                model=MODEL, messages=messages, response_format=schema, max_tokens=MAX_ANSWER_TOKENS, seed=seed,
                temperature=seed % 3, service_tier="flex",
            )  # fmt: skip
            return answer.choices[0].message.content or ""

        answers = await asyncio.gather(*map(ask, range(12)))
    parsed = [parse_answer(answer) for answer in answers]
    bad = [
        (each.reason, answer[:300]) for each, answer in zip(parsed, answers, strict=True) if isinstance(each, Rejection)
    ]
    assert not bad, bad
    print(json.dumps([getattr(each, "topology", None) for each in parsed]))

    rehearsed = rehearsed_in_a_mesh(answers)
    usual = INITIAL_TOPOLOGY, Hints()
    proposed = {(each.topology, each.hints) for each in parsed if isinstance(each, Choice) and not each.bypass}
    assert proposed - {usual}
    assert rehearsed >= proposed - {usual}


async def test_the_controller_of_the_running_mesh_reads_the_answers_of_a_real_model(mesh: Any) -> None:
    """What it does with them is told: this model proposes much the same each time, often the bypass, which no proposer
    is given."""
    async with Audits() as audits:
        await audits.listen(mesh)
        done = asyncio.create_task(audits.wait(120.0, lambda _: len(of_the_model(audits)) >= 3))
        async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", timeout=PATIENCE_S) as client:
            while not done.done():
                await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=4
                )
                await asyncio.sleep(0.2)
    found = of_the_model(audits)
    assert len(found) >= 3, audits.found
    print([(r.kind, r.decision, r.reason[:60]) for r in found])
    assert not [r for r in found if r.decision == NOTHING], found  # the decision of an answer that does not parse


def of_the_model(audits: Audits) -> list[AuditRecord]:
    return [r for r in audits.found if r.selector == "llm"]


def rehearsed_in_a_mesh(answers: list[str]) -> set[tuple[str, Hints]]:
    """Gives the answers to a simulated mesh, one every few seconds, and returns what was rehearsed of them."""
    told = cycle(answers)
    rehearsed: set[tuple[str, Hints]] = set()

    def rehearse(effect: Rehearse, blocks: Iterable[PastBlock]) -> RehearsalAnswered:
        answered = of_blocks(effect, blocks)
        if answered.rehearsal is not None:  # not before the engines' pace is known
            rehearsed.update((each.policy.topology, each.policy.hints) for each in answered.rehearsal.candidates)
        assert {each.proposer for each in effect.candidates} == {"llm"}
        return answered

    rehearsing = RehearsalConfig(enabled=True, window_s=10.0, cpu_share=1.0)
    meta = MetaConfig(selector="llm", decide_every_s=5.0, min_dwell_s=0.0, rehearsal=rehearsing)
    workload = random_workload(3, 20.0, 10.0 * (len(answers) + 6))
    setup = replace(NOISY, meta_config=meta, language_model=SimulatedModel(lambda ask: next(told)))
    MeshSim(setup, SMALL, 2, workload, 3, rehearsal=rehearse).run()
    return rehearsed
