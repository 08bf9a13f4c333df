"""Requests that are made late on purpose: eight ways, five requests each. Of each it is known by the run itself, not by
what a gateway keeps, why it was late."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hmas.contracts.control import TopologyName
from hmas.contracts.gateway import TenantLimits
from hmas.contracts.request import Slo, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest
from tests.builders.requests import client_request
from tests.sim.sim_cases import SMALL

LAX = Slo(60.0, 1.0)
LATE = "late"  # the id of the request that is late
ROOMY = SMALL.with_limits(num_gpu_blocks=8 * SMALL.limits.num_gpu_blocks)  # slots are short, memory is not
WIDE = SMALL.with_limits(max_num_seqs=4 * SMALL.limits.max_num_seqs)  # the other way round


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCase:
    """`others` run beside the request that is late. `told` is what must be in its sentence after the verdict, a regular
    expression; `judged` what the verdict says was late, empty for a request that was not served whole."""

    name: str
    late: OfferedRequest
    others: tuple[OfferedRequest, ...] = ()
    engines: int = 1
    profile: EngineProfile = ROOMY
    faults: tuple[Fault, ...] = ()
    limits: tuple[TenantLimits, ...] = ()
    pin: TopologyName | None = None
    judged: str = "first token"
    told: str

    @property
    def setup(self) -> MeshSetup:
        return MeshSetup(faults=self.faults, pin=self.pin)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: when it comes, tokens of its prompt and of its answer, and its SLO. `predicted`: what perception
    says of the length, by default the truth."""

    at_s: float
    prompt: int
    output: int
    slo: Slo = LAX
    predicted: float | None = None
    tenant: str = "t"
    relegate: bool = True
    name: str = field(default=LATE, kw_only=True)

    def offered(self) -> OfferedRequest:
        request = client_request(
            self.name, model="model", tenant=self.tenant, prompt_tokens=self.prompt, max_tokens=2048, slo=self.slo,
            arrival_s=self.at_s, stream=not self.slo.whole, relegate=self.relegate,
        )  # fmt: skip
        length = float(self.output) if self.predicted is None else self.predicted
        return OfferedRequest(
            request=request, output_tokens=self.output, slo=self.slo, task=TaskType.DIALOGUE,
            recorded=(TaskType.DIALOGUE, 0.9, length, 1.5 * length),
        )  # fmt: skip


def crowd(
    number: int, at_s: float, prompt: int, output: int, slo: Slo = LAX, **more: object
) -> tuple[OfferedRequest, ...]:
    return tuple(
        Ask(at_s + 0.001 * i, prompt, output, slo, name=f"other-{i}", **more).offered()  # type: ignore[arg-type]
        for i in range(number)
    )


def within(ttlt_s: float) -> Slo:
    return Slo(1.0, 0.1, ttlt_s, whole=True)


SECONDS = r"\d+\.\d\d s"
WAITED = rf"it waited {SECONDS} for an engine(?! that| to)\b"


def queued() -> Iterator[LateCase]:
    """All slots of the engines are taken, and memory is not."""
    short = Slo(0.5, 0.1)
    busy = crowd(40, 1.0, 40, 300)
    yield LateCase(name="no slot", late=Ask(1.5, 40, 20, short).offered(), others=busy, told=WAITED)
    yield LateCase(
        name="no slot of two",
        late=Ask(2.0, 40, 20, short).offered(),
        others=crowd(80, 1.0, 40, 300),
        engines=2,
        told=WAITED,
    )
    yield LateCase(
        name="behind a crowd", late=Ask(1.2, 40, 20, Slo(1.0, 0.1)).offered(), others=crowd(60, 1.0, 40, 100),
        pin=TopologyName.FCFS, told=WAITED,
    )  # fmt: skip
    yield LateCase(
        name="not streamed", late=Ask(1.5, 40, 20, within(1.0)).offered(), others=busy, judged="last token", told=WAITED
    )
    yield LateCase(
        name="all alike", late=Ask(1.1, 40, 40, Slo(1.0, 0.1)).offered(), others=crowd(80, 1.0, 40, 100, Slo(1.0, 0.1)),
        told=WAITED,
    )  # fmt: skip


def long_prompts() -> Iterator[LateCase]:
    """The engine is idle and as quick as ever, and the prompt alone takes longer than the SLO."""
    for prompt, slo in ((3900, Slo(0.1, 0.1)), (3000, Slo(0.15, 0.1)), (2000, Slo(0.05, 0.1))):
        told = rf"its prompt of {prompt} tokens took {SECONDS}\.$"
        yield LateCase(name=f"{prompt} tokens", late=Ask(1.0, prompt, 20, slo).offered(), told=told)
    for prompt, output in ((3900, 4), (3500, 8)):
        told = rf"its prompt of {prompt} tokens and its answer of {output} took {SECONDS}, .*the prompt"
        late = Ask(1.0, prompt, output, within(0.1)).offered()
        yield LateCase(name=f"{prompt} tokens, not streamed", late=late, judged="last token", told=told)


def slow_engines() -> Iterator[LateCase]:
    """The engine's steps take several times as long as they usually do."""

    def slow(at_s: float, factor: float) -> tuple[Fault, ...]:
        return (Fault(at_s=at_s, kind=FaultKind.SLOW, target="e0", until_s=100.0, factor=factor),)

    pace, first = (
        rf"e0 took {SECONDS} for \d+ tokens, where {SECONDS} were predicted\.$",
        (rf"e0 took {SECONDS} to its first token, where {SECONDS} were predicted\.$"),
    )
    before = crowd(8, 1.0, 100, 100)
    yield LateCase(
        name="slow steps",
        late=Ask(1.0, 100, 100, Slo(5.0, 0.03)).offered(),
        faults=slow(0.9, 6.0),
        judged="pace",
        told=pace,
    )
    yield LateCase(
        name="slow after a while, and longer than predicted", others=before,
        late=Ask(6.0, 100, 100, Slo(5.0, 0.03), predicted=40.0).offered(),
        faults=slow(5.9, 6.0), judged="pace", told=pace,
    )  # fmt: skip
    yield LateCase(
        name="slow prefill",
        late=Ask(6.0, 1500, 20, Slo(0.5, 1.0)).offered(),
        others=before,
        faults=slow(5.9, 8.0),
        told=first,
    )
    yield LateCase(
        name="slow, not streamed", late=Ask(6.0, 100, 100, within(3.0)).offered(), others=before, faults=slow(5.9, 6.0),
        judged="last token", told=pace,
    )  # fmt: skip
    yield LateCase(
        name="slow while it answers", late=Ask(6.0, 100, 200, Slo(5.0, 0.02)).offered(), others=before,
        faults=slow(6.5, 6.0), judged="pace", told=pace,
    )  # fmt: skip


def misjudged() -> Iterator[LateCase]:
    """The answer is far longer than was predicted, so that it takes longer than the whole may."""
    for output, predicted, slo in (
        (400, 20.0, within(2.0)), (600, 100.0, within(3.0)), (350, 250.0, within(3.0)),
        (400, 20.0, Slo(1.0, 0.1, 2.0)), (700, 60.0, Slo(1.0, 0.1, 3.0)),
    ):  # fmt: skip
        told = rf"its answer had {output} tokens, where {predicted:.0f} were predicted, and took {SECONDS}\.$"
        kind = "not streamed" if slo.whole else "streamed"
        late = Ask(1.0, 60, output, slo, predicted).offered()
        yield LateCase(name=f"{output} tokens, {kind}", late=late, judged="last token", told=told)


def refused() -> Iterator[LateCase]:
    """Its client prefers a refusal to a late answer."""

    def told(which: str) -> str:
        return rf"\(slo_unreachable\): .*{which} token .*due after"

    busy = crowd(40, 1.0, 40, 300)
    idle = Ask(1.0, 3900, 20, Slo(0.05, 0.1), relegate=False)
    yield LateCase(name="even when idle", late=idle.offered(), judged="", told=told("first"))
    yield LateCase(
        name="even when idle, not streamed", late=Ask(1.0, 3900, 20, within(0.05), relegate=False).offered(), judged="",
        told=told("last"),
    )  # fmt: skip
    yield LateCase(
        name="no slot", late=Ask(1.5, 40, 20, Slo(0.5, 0.1), relegate=False).offered(), others=busy, judged="",
        told=told("first"),
    )  # fmt: skip
    yield LateCase(
        name="no slot, not streamed", late=Ask(1.5, 40, 20, within(1.0), relegate=False).offered(), others=busy,
        judged="", told=told("last"),
    )  # fmt: skip
    yield LateCase(
        name="behind a crowd", late=Ask(1.2, 40, 20, Slo(1.0, 0.1), relegate=False).offered(),
        others=crowd(60, 1.0, 40, 100), pin=TopologyName.FCFS, judged="", told=told("first"),
    )  # fmt: skip


def lost_engines() -> Iterator[LateCase]:
    """The engine that had it is gone, and another one serves it; or it was too late for that."""

    def gone(at_s: float, kind: FaultKind, target: str = "e0") -> tuple[Fault, ...]:
        return (Fault(at_s=at_s, kind=kind, target=target, until_s=100.0),)

    told = rf"{SECONDS} were lost with e0\.$"
    prompt = Ask(1.0, 3000, 20, Slo(0.6, 0.1))
    crawling = Fault(at_s=0.9, kind=FaultKind.SLOW, target="e0", until_s=100.0, factor=20.0)
    yield LateCase(name="frozen", late=prompt.offered(), engines=2, faults=gone(1.1, FaultKind.FREEZE), told=told)
    yield LateCase(
        name="hung", late=Ask(6.0, 3000, 20, Slo(0.6, 0.1)).offered(), others=crowd(16, 1.0, 100, 100), engines=2,
        faults=gone(6.1, FaultKind.HANG), told=told,
    )  # fmt: skip
    yield LateCase(
        name="parted", late=Ask(1.0, 3000, 20, Slo(0.35, 0.1)).offered(), engines=2,
        faults=(crawling, *gone(2.5, FaultKind.PART, "g0-e0")), told=told,
    )  # fmt: skip
    yield LateCase(
        name="frozen, not streamed", late=Ask(1.0, 100, 100, within(1.5)).offered(), engines=2,
        faults=gone(1.5, FaultKind.FREEZE), judged="last token", told=told,
    )  # fmt: skip
    yield LateCase(
        name="after its first token", late=Ask(1.0, 100, 300, Slo(1.0, 0.1)).offered(), engines=2,
        faults=gone(2.0, FaultKind.PART, "g0-e0"), judged="", told=r"\be0\b.*the connection to the engine was lost",
    )  # fmt: skip


def fenced() -> Iterator[LateCase]:
    """The engine has free slots, and its memory is promised to others."""
    short, told = Slo(0.5, 0.1), rf"it waited {SECONDS} for memory of an engine"
    large = crowd(2, 1.0, 3000, 300)
    yield LateCase(
        profile=WIDE,
        name="long answers",
        late=Ask(12.0, 2500, 20, Slo(0.6, 0.1)).offered(),
        others=crowd(6, 1.0, 100, 1200),
        told=told,
    )
    yield LateCase(profile=WIDE, name="long prompts", late=Ask(2.5, 2200, 20, short).offered(), others=large, told=told)
    yield LateCase(
        profile=WIDE,
        name="two engines",
        late=Ask(3.0, 2200, 20, short).offered(),
        others=crowd(4, 1.0, 3000, 300),
        engines=2,
        told=told,
    )
    yield LateCase(
        profile=WIDE,
        name="not streamed",
        late=Ask(2.5, 2200, 20, within(1.0)).offered(),
        others=large,
        judged="last token",
        told=told,
    )
    yield LateCase(profile=WIDE,
        name="behind one that waits for memory", late=Ask(2.6, 40, 20, short).offered(),
        others=(*large, Ask(2.5, 3000, 20, LAX, name="large").offered()), pin=TopologyName.FCFS, told=told,
    )  # fmt: skip


def limited() -> Iterator[LateCase]:
    """Its tenant has used what it may."""

    def case(name: str, limits: TenantLimits, others: tuple[OfferedRequest, ...], told: str) -> LateCase:
        late = Ask(1.5, 100, 20, Slo(20.0, 0.1), tenant="a").offered()
        return LateCase(name=name, late=late, others=others, limits=(limits,), judged="", told=told)

    own = crowd(4, 1.0, 40, 300, tenant="a")
    yield case("requests", TenantLimits(tenant="a", requests_per_min=4), own,
               r"\(tenant_request_rate\): tenant `a` has used its 4 requests per minute")  # fmt: skip
    yield case("tokens", TenantLimits(tenant="a", tokens_per_min=200), own,
               r"\(tenant_token_rate\): tenant `a` has used its 200 tokens per minute")  # fmt: skip
    yield case("in flight", TenantLimits(tenant="a", max_in_flight=4), own, r"\(tenant_in_flight\): tenant `a` .*4")
    queue = Ask(1.3, 40, 20, tenant="a", name="before").offered()
    yield case("queued", TenantLimits(tenant="a", max_queued=1), (*crowd(40, 1.0, 40, 300, tenant="b"), queue),
               r"\(tenant_queue_full\): tenant `a` .*1")  # fmt: skip
    yield case("beside another", TenantLimits(tenant="a", max_in_flight=2),
               (*crowd(2, 1.0, 40, 300, tenant="a"), Ask(1.2, 40, 20, tenant="b", name="b").offered()),
               r"\(tenant_in_flight\): tenant `a` .*2")  # fmt: skip


WAYS = {
    "queue": queued, "long prompt": long_prompts, "slow engine": slow_engines, "misjudged length": misjudged,
    "refused": refused, "lost engine": lost_engines, "fenced memory": fenced, "tenant's limit": limited,
}  # fmt: skip
