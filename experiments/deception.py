"""Deception and drift: prompts that mislead perception, and a model that begins to answer otherwise.

From `FROM_S` on the requests of one tenant, or the answers of all, are other than perception expects. In a second run
of the same requests, whose arrivals, types and lengths are the same, perception is not misled. The first run tells
after how many settled requests the worker's online correction of lengths (`hmas.worker.agent.estimates.length_bias`)
has halved the error; both together tell what it costs the other tenants. Two more runs are oracles. In one the
correction learns each answer's length when the answer begins, so that the difference to the first is what comes of late
news. In the other perception knows types and lengths of the misled requests as they are, so that what is lost against
it is all that their misjudgement costs.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import log1p
from pathlib import Path
from random import Random
from statistics import fmean, median
from time import process_time
from typing import Any, Literal

from experiments.length_bounds import bounds_of
from experiments.study import Figures, Finished, Options
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.laws.scoring import is_ok
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.sim.estimators import Shipped
from hmas.sim.perceived import perceived, shipped_backend
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas.worker.agent.config import LengthBiasConfig
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.estimates.length_bias import LengthBias
from hmas_lab.sim.capacity import find_capacity
from hmas_lab.sim.cells import GUESS_RPS
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.provenance import SOURCES, source_digest
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key
from hmas_loadgen.slo import TASK_LENGTHS
from hmas_loadgen.typed import typed_prompts

PROFILE, ENGINES, CHUNK_TOKENS = "qwen3-32b-h100x2", 1, 1024
FROM_S = 20.0
LOAD = 1.4  # λ*
TENANTS = (("alpha", 1.0), ("beta", 1.0), ("gamma", 1.0), ("delta", 1.0))
DECEIVER = "alpha"
MAX_TOKENS = 16_384  # the same for all, and above every answer
LONGER = 2.5  # by this factor the answers of the new model are longer
WINDOW = 20  # settled requests over which an error is averaged
MOST_LOST = 0.02  # goodput rate of the others
LEAST_BIAS = 0.2  # of the logarithm of lengths; a smaller error has no half worth waiting for
Arm = Literal["control", "misled", "told", "known"]
ARMS: tuple[Arm, ...] = ("control", "misled", "told", "known")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`truth` gives the task type and answer length of a request, `honest` the text that fits them and `misleading` the
    text that is sent; all take the request as it was before, with its honest text. `all_tenants`: the answers of all
    change, and perception reads the same text as before."""

    name: str
    truth: Callable[[OfferedRequest, Random], tuple[TaskType, int]]
    honest: Callable[[OfferedRequest, Random], str]
    misleading: Callable[[OfferedRequest, Random], str]
    all_tenants: bool = False


def _unchanged(r: OfferedRequest, _: Random) -> tuple[TaskType, int]:
    return r.task, r.output_tokens


def _as_before(r: OfferedRequest, _: Random) -> str:
    return r.prompt


def _essay_length(_: OfferedRequest, draw: Random) -> tuple[TaskType, int]:
    lengths = TASK_LENGTHS[TaskType.ESSAY_GENERATION]
    tokens = lengths.output_p50 * draw.lognormvariate(0.0, lengths.output_sigma)
    return TaskType.ESSAY_GENERATION, max(1, round(tokens))


def _few_tokens(_: OfferedRequest, draw: Random) -> tuple[TaskType, int]:
    return TaskType.QA, draw.randint(1, 8)


def _essay(r: OfferedRequest, draw: Random) -> str:
    return typed_prompts().text(TaskType.ESSAY_GENERATION, r.request.prompt_tokens, 1200, draw)


def _one_word(r: OfferedRequest, draw: Random) -> str:
    return f"Answer in one word: {typed_prompts().text(TaskType.QA, r.request.prompt_tokens, 3, draw)}"


def _short_claim(r: OfferedRequest, _: Random) -> str:
    return f"Be brief. {r.prompt}\nAnswer in one short sentence of at most 10 words."


def _template(r: OfferedRequest, draw: Random) -> str:
    mark = f"{draw.getrandbits(64):016x}"
    body = json.dumps({"lane": "b2", "unit": mark, "arg0": r.prompt, "arg1": None})
    return f"@@relay/7 exec seq={mark[:6]} ttl=30\n{body}\n@@end relay/7 crc={mark[6:]} fields=4 retry=0"


# One request of each type in German and in Spanish. `{n}` is a number of words, `{text}` prose of the same language.
FOREIGN: dict[TaskType, tuple[str, str]] = {
    TaskType.QA: ("Seit wann gibt es Leuchttürme an dieser Küste?", "¿Quién inventó la máquina de escribir?"),
    TaskType.DIALOGUE: (
        "Du bist der Wirt eines Gasthofs, bleib in deiner Rolle. Gast: Ist noch ein Zimmer frei?",
        "Eres la recepcionista de un hotel, no salgas de tu papel. Cliente: ¿queda alguna habitación?",
    ),
    TaskType.TRANSLATION: ("Übertrage ins Polnische:\n\n{text}", "Pásame esto al checo:\n\n{text}"),
    TaskType.EXTRACTION: ("{text}\n\nNenne alle Orte, die vorkommen.", "{text}\n\nAnota todos los lugares citados."),
    TaskType.PARAPHRASING: ("Sag das freundlicher:\n\n{text}", "Dilo de forma más sencilla:\n\n{text}"),
    TaskType.CODE_GENERATION: (
        "Schreibe in Rust etwas, das überlappende Intervalle zusammenfasst.",
        "Escribe en Go algo que quite los duplicados sin cambiar el orden.",
    ),
    TaskType.INSTRUCTION_FOLLOWING: (
        "Erkläre, wie Salz gewonnen wird. Benutze kein Komma und beginne jede Zeile mit einer Zahl.",
        "Explica cómo se hace la miel. No uses adjetivos y termina con una pregunta.",
    ),
    TaskType.SUMMARIZATION: ("{text}\n\nFasse das kurz zusammen.", "{text}\n\nResúmelo en pocas frases."),
    TaskType.LETTER_DRAFTING: (
        "Setze ein Schreiben von etwa {n} Wörtern an die Hausverwaltung auf: der Aufzug steht seit einem Monat.",
        "Redacta una carta de unas {n} palabras al seguro: el paquete llegó roto.",
    ),
    TaskType.MATH_REASONING: (
        "Ein Zug fährt 340 km in 4 Stunden, danach 90 km in einer. Wie schnell fährt er im Mittel?",
        "Una caja pesa 12 kg y otra un tercio más. ¿Cuánto pesan juntas, paso a paso?",
    ),
    TaskType.ESSAY_GENERATION: (
        "Erörtere in etwa {n} Wörtern, ob Museen nichts kosten sollten.",
        "Argumenta en unas {n} palabras si el voto debe ser obligatorio.",
    ),
    TaskType.LONG_FORM_GENERATION: (
        "Erzähle in etwa {n} Wörtern von einer Fähre, die einen Tag vor ihrer Abfahrt ankommt.",
        "Escribe un relato de unas {n} palabras sobre un relojero que repara recuerdos.",
    ),
    TaskType.RESEARCH_AND_COMMUNICATION: (
        "Vergleiche, was über Gezeitenkraft bekannt ist, mit Quellen und einem Fazit.",
        "Investiga el mercado de las bicicletas y prepara un informe con fuentes.",
    ),
}
PROSE = (
    "Der Ausschuss traf sich am Montag und sprach lange über den Haushalt. Am Ende wurde nichts beschlossen. ",
    "El comité se reunió el lunes y habló mucho del presupuesto. Al final no se decidió nada. ",
)


def _foreign(r: OfferedRequest, draw: Random) -> str:
    place = draw.randrange(2)
    size, prose = 4 * r.request.prompt_tokens, PROSE[place]
    text = (prose * (size // len(prose) + 1))[: max(40, size)]
    words = max(10, round(r.output_tokens / 1.4))
    return FOREIGN[r.task][place].replace("{n}", str(words)).replace("{text}", text)


SCENARIOS = (
    Scenario("says one word, gets an essay", _essay_length, _essay, _one_word),
    Scenario("asks for an essay, gets a word", _few_tokens, _one_word, _essay),
    Scenario("another language", _unchanged, _as_before, _foreign),
    Scenario("claims to want ten words", _unchanged, _as_before, _short_claim),
    Scenario("a template never seen", _unchanged, _as_before, _template),
    Scenario(
        f"another model answers {LONGER:g} times as long",
        lambda r, _: (r.task, round(LONGER * r.output_tokens)),
        _as_before,
        _as_before,
        all_tenants=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeceptionCell:
    """The parameters of one λ* (no arm) or run."""

    scenario: str
    duration_s: float
    arm: Arm | None = None
    seed: int = 0
    load: float = 0.0

    def key(self) -> str:
        return cell_key(self)


def code_of_deception(_: Any) -> str:
    """Returns the digest of the code that the figures depend on."""
    return source_digest(("experiments.deception",), (*SOURCES, Path(__file__).parents[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeceptionRun:
    """The figures of one run. `raw`, `frozen` and `corrected` are the errors log(answer / prediction) of the misled
    requests in the order in which they settled: of perception's word, of that word with the median correction up to
    `FROM_S`, and of what the worker made of it; `settled_s` when, after
    `FROM_S`. `later` is the mean of `corrected` over the half of these requests that came last: those that settle last
    are the longest. `own` and `others`: the goodput rates of the deceiver and of the other tenants from `FROM_S` on.
    `bounds`: see `length_bounds.bounds_of`."""

    raw: tuple[float, ...]
    frozen: tuple[float, ...]
    corrected: tuple[float, ...]
    settled_s: tuple[float, ...]
    later: float
    own: float
    others: float
    cpu_s: float
    bounds: dict[str, int]


@dataclass(frozen=True, slots=True)
class Halved:
    """After how many settled requests, and seconds from the first misled arrival on, the error was halved; None if it
    never was."""

    settled: int | None
    after_s: float | None


def engine() -> EngineProfile:
    return chunked(builtin_profile(PROFILE), CHUNK_TOKENS)


def offered(scenario: Scenario, arm: Arm, rate_rps: float, seed: int, duration_s: float) -> Workload:
    """Returns the requests of one arm; all arms have the same arrivals, types and lengths."""
    spec = WorkloadSpec(kind="mix", duration_s=duration_s, tenants=TENANTS)
    plain = build(spec, rate_rps, seed, prompts=True).fitting(engine())
    requests = tuple(_changed(scenario, arm, r, seed) for r in plain.requests)
    return replace(plain, name="deception", requests=requests).fitting(engine())


def _changed(scenario: Scenario, arm: Arm, r: OfferedRequest, seed: int) -> OfferedRequest:
    request = replace(r.request, max_tokens=MAX_TOKENS)
    if not misled(scenario, r):
        return replace(r, request=request)
    task, tokens = scenario.truth(r, Random(f"{seed} truth {r.id}"))
    slo = default_slo(task, request.importance)
    r = replace(r, request=request, task=task, output_tokens=tokens, slo=slo)
    text = scenario.honest if arm == "control" else scenario.misleading
    return replace(r, prompt=text(r, Random(f"{seed} text {r.id}")))


def misled(scenario: Scenario, r: OfferedRequest) -> bool:
    return r.request.arrival_s >= FROM_S and (scenario.all_tenants or r.request.tenant == DECEIVER)


class RememberingBackend:
    """Asks perception once for each different prompt, because arms and scenarios share most of them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._answers: dict[PromptView, Estimate | None] = {}

    @property
    def version(self) -> str:
        return self._backend.version

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        if new := [prompt for prompt in prompts if prompt not in self._answers]:
            self._answers |= zip(new, self._backend.estimate(new), strict=True)
        return [self._answers[prompt] for prompt in prompts]


@cache
def _backend() -> RememberingBackend:
    return RememberingBackend(shipped_backend())


def read(scenario: Scenario, arm: Arm, workload: Workload) -> Workload:
    """Returns the workload as perception reads it. In the control of a new model it knows how long that answers, and in
    the arm `known` it knows all of the requests that mislead it."""
    seen = perceived(workload, _backend())
    if arm == "known":
        return replace(seen, requests=tuple(_known(scenario, r) for r in seen.requests))
    if not scenario.all_tenants or arm != "control":
        return seen
    return replace(seen, requests=tuple(_knowing(scenario, r) for r in seen.requests))


def _knowing(scenario: Scenario, r: OfferedRequest) -> OfferedRequest:
    if r.recorded is None or not misled(scenario, r):
        return r
    task, confidence, tokens, upper = r.recorded
    return replace(r, recorded=(task, confidence, LONGER * tokens, LONGER * upper))


def _known(scenario: Scenario, r: OfferedRequest) -> OfferedRequest:
    if r.recorded is None or not misled(scenario, r):
        return r
    return replace(r, recorded=(r.task, 1.0, float(r.output_tokens), float(r.output_tokens)))


class _ToldLengths(LengthBias):
    def __init__(self, config: LengthBiasConfig, lengths: Mapping[str, int]) -> None:
        super().__init__(config)
        self._lengths = lengths

    def began(self, entry: QueueEntry) -> None:
        super().began(entry)
        so_far, entry.output_tokens = entry.output_tokens, self._lengths[entry.request.id]
        self.learn(entry)
        entry.output_tokens = so_far


class WatchedMesh(MeshSim):
    """A run that keeps what the workers report of finished requests, with the instant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.finished: list[tuple[float, RequestFinished]] = []

    def tell_lengths(self) -> None:
        """Lets the workers' correction of lengths learn each answer's length when it begins, which only an oracle
        could."""
        lengths = {name: journey.offered.output_tokens for name, journey in self.journeys.items()}
        for worker in self.workers.values():
            agent: Any = worker.agent
            state = agent._state
            state.length_bias = _ToldLengths(state.config.length_bias, lengths)

    def publish_worker(self, telemetry: WorkerTelemetry) -> None:
        self.finished += [(self.heap.now_s - f.age_s, f) for f in telemetry.finished if not f.censored]
        super().publish_worker(telemetry)


def capacity(scenario: Scenario, duration_s: float) -> dict[str, Any]:
    """Returns λ* of the scenario's requests, in requests per second."""
    started = process_time()

    def source(rate_rps: float, seed: int) -> Workload:
        return offered(scenario, "control", rate_rps, seed, duration_s)

    found = find_capacity(source, engine(), ENGINES, GUESS_RPS)
    return {"rate_rps": found.rate_rps, "cpu_s": process_time() - started}


class Corrections:
    """By which factors workers corrected lengths, from what they reported of requests that had ended: medians of a
    tenant's requests of a type, or, if there are none, of all that tenant's, or of all."""

    def __init__(self, seen: Iterable[tuple[str, TaskType, float]]) -> None:
        found = defaultdict[tuple[str, ...], list[float]](list)
        for tenant, task, factor in seen:
            for key in ((tenant, task.value), (tenant,), ()):
                found[key].append(factor)
        self._factors = {key: median(factors) for key, factors in found.items()}

    def factor(self, tenant: str, task: TaskType) -> float:
        """Returns 1 if nothing had ended."""
        for key in ((tenant, task.value), (tenant,), ()):
            if key in self._factors:
                return self._factors[key]
        return 1.0


def _said(finished: RequestFinished, recorded: tuple[TaskType, float, float, float]) -> float:
    """Returns the length by which a worker went. It corrects the median and the 90 % quantile, of which it reports the
    latter, by one factor."""
    _, _, length, p90 = recorded
    return length * finished.predicted_output_tokens_p90 / p90


def run(scenario: Scenario, arm: Arm, rate_rps: float, seed: int, duration_s: float) -> DeceptionRun:
    started = process_time()
    workload = read(scenario, arm, offered(scenario, arm, rate_rps, seed, duration_s))
    mesh = WatchedMesh(MeshSetup(), engine(), ENGINES, workload, seed)
    if arm == "told":
        mesh.tell_lengths()
    result = mesh.run()
    settlements = {s.request_id: is_ok(s) for s in result.settlements}
    by_id = {r.id: r for r in workload.requests}
    before = Corrections(
        (by_id[f.request_id].request.tenant, r[0], f.predicted_output_tokens_p90 / r[3])
        for at_s, f in mesh.finished
        if at_s <= FROM_S and f.predictor == Shipped.version and (r := by_id[f.request_id].recorded) is not None
    )
    rows = sorted(
        (
            at_s,
            by_id[f.request_id].request.arrival_s,
            log1p(f.output_tokens),
            log1p(_said(f, recorded)),
            recorded[2],
            before.factor(by_id[f.request_id].request.tenant, recorded[0]),
        )
        for at_s, f in mesh.finished
        if misled(scenario, by_id[f.request_id]) and f.predictor == Shipped.version
        if (recorded := by_id[f.request_id].recorded) is not None
    )
    late = [r for r in workload.requests if r.request.arrival_s >= FROM_S]
    came = sorted((arrival_s, true - said) for _, arrival_s, true, said, *_ in rows)
    return DeceptionRun(
        raw=tuple(true - log1p(claimed) for _, _, true, _, claimed, _ in rows),
        frozen=tuple(true - log1p(factor * claimed) for _, _, true, _, claimed, factor in rows),
        corrected=tuple(true - said for _, _, true, said, *_ in rows),
        settled_s=tuple(at_s - FROM_S for at_s, *_ in rows),
        later=fmean(error for _, error in came[len(came) // 2 :]) if came else 0.0,
        own=fmean(settlements[r.id] for r in late if r.request.tenant == DECEIVER),
        others=fmean(settlements[r.id] for r in late if r.request.tenant != DECEIVER),
        cpu_s=process_time() - started,
        bounds=bounds_of(result.run),
    )


def halved(found: DeceptionRun) -> Halved | None:
    """Returns when the mean error of the last `WINDOW` settled requests was first at most half of what it would have
    been had the worker learnt nothing since `FROM_S`, and was so over the next `WINDOW` too, or what is left of them;
    None if that error was not wrong on average, by `LEAST_BIAS`."""
    if len(found.frozen) < WINDOW or abs(fmean(found.frozen)) < LEAST_BIAS:
        return None

    def is_half(begin: int) -> bool:
        part = slice(begin, begin + WINDOW)
        return abs(fmean(found.corrected[part])) <= 0.5 * abs(fmean(found.frozen[part]))

    for end in range(WINDOW, len(found.frozen) + 1):
        if is_half(end - WINDOW) and (end == len(found.frozen) or is_half(end)):
            return Halved(end, found.settled_s[end - 1])
    return Halved(None, None)


def cells(options: Options, found: Finished) -> Iterator[Sequence[DeceptionCell]]:
    """Yields the λ* of all scenarios, and then the runs, one seed after the other."""
    yield [capacity_of(scenario, options) for scenario in SCENARIOS]
    for seed in options.numbers:
        yield [run_of(scenario, arm, seed, options) for scenario in SCENARIOS for arm in ARMS]


def capacity_of(scenario: Scenario, options: Options) -> DeceptionCell:
    """Scenarios that change no truth share one λ*."""
    name = scenario.name if scenario.truth is not _unchanged else "no change"
    return DeceptionCell(scenario=name, duration_s=options.seconds)


def run_of(scenario: Scenario, arm: Arm, seed: int, options: Options) -> DeceptionCell:
    return DeceptionCell(scenario=scenario.name, arm=arm, seed=seed, load=LOAD, duration_s=options.seconds)


def given(cell: DeceptionCell, options: Options, found: Finished) -> tuple[float, ...]:
    """Returns λ* of a run, in requests per second."""
    capacity = cell.arm and found.get(capacity_of(_scenario(cell), options))
    return (capacity["rate_rps"],) if capacity else ()


def compute(cell: DeceptionCell, capacity_rps: float = 0.0) -> Figures:
    if cell.arm is None:
        return capacity(_scenario(cell), cell.duration_s)
    return asdict(run(_scenario(cell), cell.arm, cell.load * capacity_rps, cell.seed, cell.duration_s))


def _scenario(cell: DeceptionCell) -> Scenario:
    """Returns the scenario of a cell; for the λ* that several share, one of them."""
    return next(s for s in SCENARIOS if s.name == cell.scenario or (s.truth is _unchanged and not cell.arm))


def found_of(options: Options, found: Finished) -> dict[str, dict[str, Any]]:
    """Returns by scenario its λ* (`capacity`) and the finished runs of all arms, one per seed."""

    def figures(cell: DeceptionCell) -> DeceptionRun:
        run = found.get(cell) or {}
        told: Figures = {name: run[name] for name in DeceptionRun.__dataclass_fields__}
        for name in ("raw", "frozen", "corrected", "settled_s"):
            told[name] = tuple(told[name])
        return DeceptionRun(**told)

    return {
        s.name: {"capacity": found.get(capacity_of(s, options))}
        | {arm: [figures(run_of(s, arm, seed, options)) for seed in options.numbers] for arm in ARMS}
        for s in SCENARIOS
    }
