"""Measures the chain of a prompt against hashing its body once, and linking on top of it, on one core."""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from itertools import count
from time import perf_counter

from hmas.contracts.job import PrefixChain, StageArrived
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.laws.prefix_chain import chain_of_messages, tenant_key
from hmas.wire.codec import decode, encode

PROMPT_BYTES = 32 * 1024
MESSAGES = (2, 16, 64)
ROUNDS, CALLS = 100, 5
KEY = tenant_key("tenant")


def rows() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    whole = b"a" * PROMPT_BYTES
    for number in MESSAGES:
        text = "a" * (PROMPT_BYTES // number)
        messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i in range(number)]
        once_s, chain_s = _seconds(partial(blake2b, whole), partial(chain_of_messages, KEY, b"model", messages))
        found.append({"name": f"chain of 32 KiB in {number} messages over BLAKE2b once", "value": chain_s / once_s,
                      "unit": "x", "goal": "<= 3", "met": chain_s / once_s <= 3})  # fmt: skip
        chain, linker, ids = chain_of_messages(KEY, b"model", messages), JobLinker(), count()

        (link_s,) = _seconds(partial(_link, linker, chain, ids))
        found.append({"name": f"chain and link of 32 KiB in {number} messages", "value": 1e6 * (chain_s + link_s),
                      "unit": "us", "goal": None, "met": None})  # fmt: skip
    messages = [{"role": "system", "content": "a" * 1024}, {"role": "user", "content": "a" * 1024}]
    chain, linker, ids = chain_of_messages(KEY, b"model", messages), JobLinker(), count()
    wire = encode(chain)
    times = _seconds(partial(chain_of_messages, KEY, b"model", messages), partial(_link, linker, chain, ids),
                     partial(encode, chain), partial(decode, PrefixChain, wire))  # fmt: skip
    found.append({"name": "chain, link, write and read of a chat of 2 KiB", "value": 1e6 * sum(times), "unit": "us",
                  "goal": None, "met": None})  # fmt: skip
    return found


def _link(linker: JobLinker, chain: PrefixChain, ids: "count[int]") -> None:
    linker.step(0.0, StageArrived(request_id=str(next(ids)), tenant="tenant", chain=chain))


def _seconds(*calls: Callable[[], object]) -> list[float]:
    """Returns the time of each call: that of its fastest round; the rounds take turns."""
    best = [1e9] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = perf_counter()
            for _ in range(CALLS):
                call()
            best[i] = min(best[i], (perf_counter() - start) / CALLS)
    return best
