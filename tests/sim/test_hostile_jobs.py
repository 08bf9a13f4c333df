"""A tenant that lies about its jobs, or floods the mesh with small ones, does not make others' late: budgets of a
millisecond, others' job ids, jobs of one stage with a budget that can just be kept, and none. `HOSTILE_SECONDS=255`
makes the runs ten times as long: 10,000 jobs of the hostile tenant beside 200 of the other's, in two minutes."""

import os
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.engine.core.profile import builtin_profile
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.jobs import JobCall, JobClients, SimJob, score_jobs
from tests.builders.requests import client_request

PROFILE, ENGINES, SEQUENCES = "tiny-emulated", 2, 16
SLO = Slo(60.0, 1.0)
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "25"))
JOBS_PER_S, ATTACKS_PER_S = 0.8, 40.0
BUDGET_S = 12.0


def offered(
    request_id: str, tenant: str, at_s: float, prompt: int, output: int, job: str, budget_s: float | None
) -> OfferedRequest:
    request = client_request(
        request_id, model="model", tenant=tenant, prompt_tokens=prompt, max_tokens=4096, slo=SLO, slo_stated=False,
        arrival_s=at_s, prefix=PrefixChain((len(tenant),), (0,)),
    )  # fmt: skip
    return OfferedRequest(
        request=request, output_tokens=output, slo=SLO, task=TaskType.UNKNOWN, job=job, job_budget_s=budget_s
    )


def jobs() -> list[SimJob]:
    """Jobs of three calls, one after the other."""
    random, found, at_s = Random(1), list[SimJob](), 1.0
    while at_s < SECONDS:
        name = f"j{len(found)}"
        calls = [
            JobCall(
                offered=offered(
                    f"{name}-{i}", "acme", at_s, 600 + 300 * i, random.choice((30, 60, 120)), name, BUDGET_S
                ),
                after=(i - 1,) if i else (),
            )
            for i in range(3)
        ]
        found.append(
            SimJob(id=name, template="t", interactive=True, arrival_s=at_s, budget_s=BUDGET_S, calls=tuple(calls))
        )
        at_s += random.expovariate(JOBS_PER_S)
    return found


def attack(kind: str) -> list[OfferedRequest]:
    """Requests of 200 prompt and 60 output tokens, three times what the engines can serve."""
    random, found, at_s = Random(2), list[OfferedRequest](), 5.0
    while at_s < SECONDS:
        number = len(found)
        told: dict[str, tuple[str, float | None]] = {
            "a millisecond": (f"m{number}", 0.001),
            "others' ids": (f"j{random.randrange(30)}", 5.0),
            "small jobs": (f"m{number}", 3.0),
            "patient small jobs": (f"m{number}", BUDGET_S),
            "no word of jobs": ("", None),
        }
        job, budget_s = told[kind]
        found.append(offered(f"m-{number}", "mallory", at_s, 200, 60, job, budget_s))
        at_s += random.expovariate(ATTACKS_PER_S)
    return found


@cache
def kept(kind: str) -> float:
    """Returns the share of acme's jobs that are on time."""
    profile = builtin_profile(PROFILE).with_limits(max_num_seqs=SEQUENCES)
    own = jobs()
    clients = JobClients(own)
    first = sorted([*clients.first(), *(attack(kind) if kind else ())], key=lambda r: r.request.arrival_s)
    setup = MeshSetup(estimator="none")
    mesh = MeshSim(setup, profile, ENGINES, Workload("jobs", tuple(first), SECONDS), 1, cutoff_s=30.0)

    def settled(request_id: str) -> None:
        if request_id in clients.job_of and mesh.journeys[request_id].outcome is Outcome.FINISHED:
            for each in clients.ended(mesh.heap.now_s, request_id):
                mesh.offer(replace(each))

    mesh.on_settled = settled
    mesh.run()
    return score_jobs(own, mesh.journeys, dict.fromkeys(mesh.journeys, 1.0)).job_goodput


def test_without_an_attack_all_jobs_are_on_time() -> None:
    assert kept("") == 1.0


KINDS = ("a millisecond", "others' ids", "small jobs", "patient small jobs", "no word of jobs")


@pytest.mark.parametrize("kind", KINDS)
def test_lies_and_floods_of_one_tenant_move_the_job_goodput_of_others_by_at_most_two_points(kind: str) -> None:
    assert kept("") - kept(kind) <= 0.02
