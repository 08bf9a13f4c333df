"""What the emulated engine publishes of its KV cache: the events add up to what is cached, and the flag is vLLM's."""

from typing import Any

import pytest

from hmas.engine.__main__ import parser
from hmas.engine.core.kv_cache import CacheEvent, KvCache
from hmas.engine.core.sequence import EngineRequest, Sequence
from hmas.engine.kv_events_config import KvPublisherConfig

BLOCK = 16


def use(cache: KvCache, name: int, blocks: int) -> None:
    """A request comes, takes its memory, and goes."""
    hashes = tuple(100 * name + i for i in range(blocks))
    seq = Sequence(EngineRequest(f"{name}", blocks * BLOCK + 1, 1, prefix_hashes=hashes), 0, 1, blocks * BLOCK + 1)
    match = cache.match(seq)
    cache.take_up(seq, match)
    cache.take(blocks + 1 - match.blocks)
    seq.context = blocks * BLOCK + 1
    cache.enter(seq)
    cache.release(seq, keep=False)


def total(journal: list[CacheEvent]) -> set[int]:
    cached: set[int] = set()
    for kind, blocks in journal:
        assert kind == "cleared" or cached.isdisjoint(blocks) == (kind == "stored")
        cached = set() if kind == "cleared" else cached | set(blocks) if kind == "stored" else cached - set(blocks)
    return cached


def test_the_events_add_up_to_what_is_cached() -> None:
    cache = KvCache(20, BLOCK, prefix_caching=True)
    cache.journal = []
    for name in (1, 2, 3, 1, 4, 2, 5, 5):
        use(cache, name, 4)
        cache.check()
        assert total(cache.journal) == set(cache._refs)
    assert any(kind == "removed" for kind, _ in cache.journal)
    assert cache.reset()
    cache.check()
    assert total(cache.journal) == set() == set(cache._refs)


def test_a_cache_that_is_used_is_not_reset() -> None:
    cache = KvCache(20, BLOCK, prefix_caching=True)
    cache.take(1)
    assert not cache.reset()


def test_the_flag_is_vllms() -> None:
    flag = '{"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}'
    told = parser().parse_args(["--kv-events-config", flag]).kv_events_config
    assert told == KvPublisherConfig("0.0.0.0", 5557, 5558)
    assert KvPublisherConfig.parse('{"endpoint": "tcp://127.0.0.1:1"}') == KvPublisherConfig("127.0.0.1", 1)


@pytest.mark.parametrize("flag", ["1", "{", '{"publisher": "null"}', '{"endpoint": "ipc:///x"}', '{"endpoint": 5557}'])
def test_a_flag_that_is_none_is_refused(flag: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--kv-events-config", flag])
    assert "--kv-events-config" in capsys.readouterr().err
