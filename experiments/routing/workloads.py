"""The workloads on which routers are compared. Each request has the chain by which the gateway knows its prompt, and
the hashes of its blocks by which the engine does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from random import Random

from hmas.contracts.job import NO_CHAIN, PrefixChain
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import expand_prefix_hashes
from hmas.laws.prefix_chain import HEAD_NODES, MAX_NODES, TAIL_NODES, chain_of_messages, piece_of, tenant_key
from hmas.laws.tokens import BYTES_PER_TOKEN
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.workflows.recorded import TAU_BENCH, Workflow, read_workflows
from hmas_loadgen.workloads.published import published_trace

LOOPS, MOONCAKE, SHARED, NONE = "agent loops", "Mooncake conversation", "shared 8k root", "no sharing"
KINDS = (LOOPS, MOONCAKE, SHARED, NONE)
GAP_MEDIAN_S, GAP_SIGMA = 3.0, 1.0
IDLE_TPOT_S = 0.03
TENANT = "acme"
SLO = Slo(2.0, 0.1)
SLOS = {MOONCAKE: Slo(30.0, 0.1)}  # its longest prompts take 1.6 s on an idle engine, so that 2 s leave no time to wait
BLOCK_TOKENS = 16
TRACE_BLOCK_TOKENS = 512
ROOT_TOKENS = 8192
MOONCAKE_FILE, AZURE_FILE = "mooncake_fast25_conversation.csv.gz", "azure_2023_conv.csv.gz"
_BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Sessions:
    """A workload, and by request the session that a client would name to a router that asks for one. `job_of` has the
    job of each request where there are jobs."""

    workload: Workload
    session_of: dict[str, str]
    job_of: dict[str, str]


def build(kind: str, data: Path, rate: float, seconds: float, seed: int, profile: EngineProfile) -> Sessions:
    """Returns the workload at `rate` jobs per second, which are requests where there are no jobs. Raises ValueError for
    an unknown kind, and FileNotFoundError without the files."""
    match kind:
        case "agent loops":
            found = _loops(read_workflows(data, TAU_BENCH), rate, seconds, seed)
        case "Mooncake conversation":
            found = _mooncake(data / "traces" / MOONCAKE_FILE, rate, seconds, seed)
        case "shared 8k root":
            found = _shared(rate, seconds, seed)
        case "no sharing":
            found = _none(data / "traces" / AZURE_FILE, rate, seconds, seed)
        case _:
            raise ValueError(f"unknown workload {kind!r}: choose one of {', '.join(KINDS)}")
    return replace(found, workload=found.workload.fitting(profile))


def _loops(jobs: Sequence[Workflow], rate: float, seconds: float, seed: int) -> Sessions:
    """Returns recorded loops of agents, which start at random until `seconds`; a job's next request comes at an instant
    that is fixed beforehand: a gap after the time that the answer before would take on an idle engine."""
    random, key = Random(f"{seed} loops"), tenant_key(TENANT)
    offered, job_of, start_s, number = list[OfferedRequest](), dict[str, str](), random.expovariate(rate), 0
    while start_s < seconds:
        job, number = random.choice(jobs), number + 1
        name, at_s = f"j{number}", start_s
        told = {"role": "system", "content": f"It is run {number}."}  # no run repeats another one as a whole
        for index, call in enumerate(job.calls):
            messages = (call.messages[0], *call.messages[1:2], told, *call.messages[2:])
            prompt = b"".join(map(piece_of, messages))
            later = job.calls[index + 1].messages if index + 1 < len(job.calls) else ()
            answer = piece_of(later[len(call.messages)]) if later else b""
            hashes, blocks = _block_hashes(prompt + answer), len(prompt) // _BLOCK_BYTES
            chain = chain_of_messages(key, b"model", messages)
            request = _request(f"{name} {index}", max(1, len(prompt) // BYTES_PER_TOKEN), at_s, chain)
            offered.append(_offered(request, call.output_tokens, hashes[:blocks], hashes[blocks:]))
            job_of[request.id] = name
            at_s += call.output_tokens * IDLE_TPOT_S + GAP_MEDIAN_S * random.lognormvariate(0.0, GAP_SIGMA)
        start_s += random.expovariate(rate)
    last_s = max((each.request.arrival_s for each in offered), default=seconds)
    return _sessions(LOOPS, offered, max(seconds, last_s), dict(job_of), job_of)


def _mooncake(path: Path, rate: float, seconds: float, seed: int) -> Sessions:
    """Returns a part of the trace, faster or slower as the rate wants; the seed says where it begins. A session is
    known by the second block, since the first is the same in all; its later requests are a conversation's later turns,
    as their messages would tell."""
    rows = read_trace(path).rows
    mean_rps = len(rows) / rows[-1].arrival_s
    stretch, offered, session_of = mean_rps / rate, list[OfferedRequest](), dict[str, str]()
    whole_s = rows[-1].arrival_s * stretch
    begin_s = max(0.0, whole_s - seconds) * Random(f"{seed} mooncake").random()
    begun = set[str]()
    for number, row in enumerate(rows):
        at_s = row.arrival_s * stretch - begin_s
        session = str(row.hash_ids[min(1, len(row.hash_ids) - 1)])
        turn = _digest(f"turn {session}") if session in begun else 0
        begun.add(session)
        if not 0.0 <= at_s < seconds:
            continue
        blocks = row.hash_ids[: row.input_tokens // TRACE_BLOCK_TOKENS]
        chain = _chain_of(blocks, f"m{number}", row.input_tokens)
        chain = replace(chain, thread=_digest(f"thread {session}"), turn=turn)
        request = _request(f"m{number}", row.input_tokens, at_s, chain, SLOS[MOONCAKE])
        hashes = expand_prefix_hashes(blocks, TRACE_BLOCK_TOKENS, BLOCK_TOKENS)
        offered.append(_offered(request, row.output_tokens, hashes, ()))
        session_of[request.id] = session
    return _sessions(MOONCAKE, offered, seconds, session_of, {})


def _shared(rate: float, seconds: float, seed: int) -> Sessions:
    """Returns requests with the same 8,192 tokens before a question of their own."""
    random, at_s, offered = Random(f"{seed} shared"), 0.0, list[OfferedRequest]()
    root = tuple(range(ROOT_TOKENS // TRACE_BLOCK_TOKENS))
    while (at_s := at_s + random.expovariate(rate)) < seconds:
        name, own = f"s{len(offered)}", int(random.lognormvariate(6.0, 0.7))
        request = _request(name, ROOT_TOKENS + own, at_s, _chain_of(root, name, ROOT_TOKENS + own))
        hashes = expand_prefix_hashes(root, TRACE_BLOCK_TOKENS, BLOCK_TOKENS)
        offered.append(_offered(request, 1 + int(random.lognormvariate(4.8, 0.7)), hashes, ()))
    return _sessions(SHARED, offered, seconds, {each.id: each.id for each in offered}, {})


def _none(path: Path, rate: float, seconds: float, seed: int) -> Sessions:
    """Returns requests with the lengths of Azure's conversations, of which no two share anything."""
    rows, random, offered = read_trace(path).rows, Random(f"{seed} none"), list[OfferedRequest]()
    for number, arrival in enumerate(published_trace(rate, seconds, seed).rows):
        row, name = random.choice(rows), f"n{number}"
        request = _request(name, row.input_tokens, arrival.arrival_s, _chain_of((), name, row.input_tokens))
        offered.append(_offered(request, row.output_tokens, (), ()))
    return _sessions(NONE, offered, seconds, {each.id: each.id for each in offered}, {})


def _chain_of(blocks: Sequence[int], name: str, tokens: int) -> PrefixChain:
    """Returns the chain of a prompt whose beginnings are numbered."""
    nodes = [(_digest(str(block)), TRACE_BLOCK_TOKENS * (i + 1)) for i, block in enumerate(blocks)]
    nodes.append((_digest(name), tokens))
    if len(nodes) > MAX_NODES:
        nodes = nodes[:HEAD_NODES] + nodes[-TAIL_NODES:]
    return PrefixChain(tuple(node for node, _ in nodes), tuple(end for _, end in nodes), True)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _request(name: str, prompt_tokens: int, at_s: float, chain: PrefixChain, slo: Slo = SLO) -> Request:
    return Request(
        id=name, model="model", tenant=TENANT, flow="", prompt_tokens=prompt_tokens, max_tokens=2048, stream=True,
        slo=slo, slo_stated=True, priority=0, weight=1.0, importance=0.75, arrival_s=at_s, prefix=chain or NO_CHAIN,
    )  # fmt: skip


def _offered(request: Request, output_tokens: int, hashes: tuple[int, ...], answer: tuple[int, ...]) -> OfferedRequest:
    return OfferedRequest(
        request=request, output_tokens=max(1, output_tokens), slo=request.slo, task=TaskType.UNKNOWN,
        prefix_hashes=hashes, answer_hashes=answer,
    )  # fmt: skip


def _sessions(
    name: str, offered: list[OfferedRequest], seconds: float, session_of: dict[str, str], job_of: dict[str, str]
) -> Sessions:
    offered.sort(key=lambda each: each.request.arrival_s)
    return Sessions(Workload(name, tuple(offered), seconds), session_of, job_of)


def _block_hashes(content: bytes) -> tuple[int, ...]:
    """Returns the chained hashes of the full blocks of 16 tokens."""
    state, hashes = blake2b(digest_size=6), []
    for begin in range(0, len(content) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        state.update(content[begin : begin + _BLOCK_BYTES])
        hashes.append(int.from_bytes(state.digest(), "big"))
    return tuple(hashes)
