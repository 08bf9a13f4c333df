"""The chained hash of a prompt: what is equal, what parts, and what is bounded."""

from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.job import NO_CHAIN, PrefixChain
from hmas.laws.prefix_chain import (
    BLOCK_BYTES,
    HEAD_NODES,
    MAX_BYTES,
    MAX_NODES,
    TAIL_NODES,
    chain_of_bytes,
    chain_of_messages,
    digest_of,
    piece_of,
    tenant_key,
)

KEY = tenant_key("acme")
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": st.text(max_size=20)}),
    min_size=1,
    max_size=12,
)


def _message(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


@given(MESSAGES, MESSAGES)
def test_a_longer_prompt_has_all_nodes_of_the_one_that_it_continues(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    short, long = chain_of_messages(KEY, b"m", before), chain_of_messages(KEY, b"m", before + after)
    assert short.whole
    assert long.whole
    assert len(long.nodes) == len(long.ends) == len(before + after)
    assert long.nodes[: len(before)] == short.nodes


def test_prompts_share_the_nodes_up_to_where_they_part() -> None:
    shared = [_message("system", "policy"), _message("user", "a task")]
    one = chain_of_messages(KEY, b"m", [*shared, _message("assistant", "x")])
    other = chain_of_messages(KEY, b"m", [*shared, _message("assistant", "y")])
    assert [a == b for a, b in zip(one.nodes, other.nodes, strict=True)] == [True, True, False]


def test_no_node_is_shared_across_tenants_models_tools_or_roles() -> None:
    messages = [_message("user", "a task")]
    base = chain_of_messages(KEY, b"m", messages)
    others = [
        chain_of_messages(tenant_key("other"), b"m", messages),
        chain_of_messages(KEY, b"another model", messages),
        chain_of_messages(KEY, b"m", [_message("assistant", "a task")]),
        chain_of_messages(KEY, b"m", [_message("user", "a task", name="a person")]),
        chain_of_messages(KEY, b"m", [_message("user", "a task", tool_calls=[{"id": "1"}])]),
    ]
    assert all(not set(base.nodes) & set(other.nodes) for other in others)
    assert chain_of_messages(tenant_key("other"), b"m", messages).thread != base.thread


def test_where_a_message_ends_makes_a_difference() -> None:
    one = chain_of_messages(KEY, b"m", [_message("user", "ab"), _message("user", "c")])
    other = chain_of_messages(KEY, b"m", [_message("user", "a"), _message("user", "bc")])
    assert one.nodes[-1] != other.nodes[-1]
    assert digest_of(KEY, b"ab", b"c") != digest_of(KEY, b"a", b"bc")


def test_the_thread_is_the_first_message_of_a_user_whatever_stands_before_it() -> None:
    task = _message("user", "a task")
    one = chain_of_messages(KEY, b"m", [_message("system", "you plan"), task])
    other = chain_of_messages(KEY, b"m", [_message("system", "you write code"), task, _message("user", "a plan")])
    assert one.thread == other.thread != 0
    assert other.turn == digest_of(KEY, b"a plan")
    assert one.opening
    assert not other.opening
    assert chain_of_messages(KEY, b"m", [_message("system", "alone")]).thread == 0


def test_a_message_has_the_same_bytes_by_the_short_and_the_general_way() -> None:
    assert piece_of(_message("user", "é")) == piece_of(_message("user", "é", name=None, tool_calls=None))


def test_a_long_message_has_a_node_after_every_block_and_one_at_its_end() -> None:
    chain = chain_of_bytes(KEY, b"m", b"a" * (2 * BLOCK_BYTES + 1))
    assert chain.ends == (BLOCK_BYTES // 4, 2 * BLOCK_BYTES // 4, 2 * BLOCK_BYTES // 4 + 1)
    longer = chain_of_bytes(KEY, b"m", b"a" * (3 * BLOCK_BYTES))
    assert longer.nodes[:2] == chain.nodes[:2]


def test_nodes_are_bounded_and_keep_both_ends() -> None:
    messages = [_message("user", str(i)) for i in range(500)]
    chain = chain_of_messages(KEY, b"m", messages)
    assert len(chain.nodes) == len(chain.ends) == MAX_NODES
    assert chain.whole
    assert chain_of_messages(KEY, b"m", messages[:1]).nodes[0] == chain.nodes[0]
    assert chain_of_messages(KEY, b"m", messages[:-2]).nodes[-1] in chain.nodes


def test_a_chain_ends_after_a_megabyte_and_then_does_not_stand_for_the_whole_prompt() -> None:
    whole = chain_of_messages(KEY, b"m", [_message("user", "a" * 100), _message("user", "b" * MAX_BYTES)])
    assert not whole.whole
    assert max(whole.ends) <= MAX_BYTES // 4
    assert not chain_of_bytes(KEY, b"m", b"").nodes


def test_lists_of_parts_and_calls_of_tools_count() -> None:
    parts = _message("user", [{"type": "text", "text": "a"}])  # type: ignore[arg-type]
    other = _message("user", [{"type": "text", "text": "b"}])  # type: ignore[arg-type]
    assert piece_of(parts) != piece_of(other)
    assert piece_of({"type": "function_call", "name": "f"}) != piece_of({"type": "function_call", "name": "g"})
    assert piece_of({"type": "function_call", "arguments": "1"}) != piece_of({"type": "function_call"})


# --- by the definition


def expected(key: bytes, root: bytes, pieces: list[bytes]) -> tuple[list[int], list[int], bool]:
    """Nodes, their ends in tokens, and whether the chain is whole; each node is hashed anew."""
    prompt, ends, begin, whole = b"".join(pieces), list[int](), 0, True
    for piece in pieces:
        inner = [begin + at for at in range(BLOCK_BYTES, len(piece), BLOCK_BYTES)]
        ends += [end for end in inner if end <= MAX_BYTES]
        begin += len(piece)
        if begin > MAX_BYTES:
            whole = False
            break
        ends.append(begin)
    if len(ends) > MAX_NODES:
        ends = ends[:HEAD_NODES] + ends[-TAIL_NODES:]
    nodes = [int.from_bytes(blake2b(root + prompt[:end], key=key, digest_size=8).digest(), "big") for end in ends]
    return nodes, [-(-end // 4) for end in ends], whole


SIZES = (
    [1], [4], [5], [4095], [4096], [4097], [8192], [8193], [9, 4096, 4097, 3], [10_000, 1, 12_000], [1] * 32, [1] * 33,
    [1] * 40, [31 * 4096], [32 * 4096], [32 * 4096 + 1], [40 * 4096 + 5], [4000] * 50,
    [MAX_BYTES], [MAX_BYTES + 1], [MAX_BYTES - 8, 8], [MAX_BYTES - 8, 9], [MAX_BYTES - 4096, 4096, 1],
    [MAX_BYTES - 4096, 9999, 7], [MAX_BYTES - 1, 1, 1],
)  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "+".join(map(str, sizes[:4])) + f"x{len(sizes)}")
def test_a_node_is_the_digest_of_all_before_it_and_stands_where_it_should(sizes: list[int]) -> None:
    """A message of a user has seven bytes beside its content."""
    messages = [_message("user", chr(97 + i % 26) * max(0, size - 7)) for i, size in enumerate(sizes)]
    pieces = [piece_of(message) for message in messages]
    nodes, ends, whole = expected(KEY, b"root", pieces)
    chain = chain_of_messages(KEY, b"root", messages)
    assert (list(chain.nodes), list(chain.ends), chain.whole) == (nodes, ends, whole)
    (first, *_), one = pieces, chain_of_bytes(KEY, b"root", pieces[0])
    nodes, ends, whole = expected(KEY, b"root", [first])
    assert one == PrefixChain(tuple(nodes), tuple(ends), whole, 0, 0)


def test_a_chain_of_nothing_has_no_nodes() -> None:
    assert chain_of_bytes(KEY, b"root", b"") == NO_CHAIN
    empty = chain_of_messages(KEY, b"root", [])
    assert (empty.nodes, empty.ends, empty.whole, empty.thread, empty.turn) == ((), (), False, 0, 0)


def test_a_digest_is_of_every_part_and_its_length() -> None:
    joined = b"".join(part + len(part).to_bytes(8, "big") for part in (b"ab", b"", b"c"))
    assert digest_of(KEY, b"ab", b"", b"c") == int.from_bytes(blake2b(joined, key=KEY, digest_size=8).digest(), "big")
    assert len(KEY) == 16
    assert tenant_key("\ud800")


def test_the_bytes_of_a_message_are_its_role_name_text_and_calls() -> None:
    end = b"\0\x1e"
    calls = [{"id": "1"}]
    assert piece_of({"role": "user", "content": "é"}) == b"user\0" + "é".encode() + end
    assert piece_of({"role": "user", "content": "a", "name": "n"}) == b"user\x1fn\0a" + end
    assert piece_of({"role": "user", "content": "a", "name": ""}) == b"user\0a" + end
    assert piece_of({"role": "tool", "content": None}) == b"tool\0" + end
    assert piece_of({"role": "user", "content": ["a"]}) == b'user\0["a"]' + end
    assert piece_of({"role": "assistant", "content": "a", "tool_calls": calls}) == b'assistant\0a\0[{"id":"1"}]' + end
    assert piece_of({"role": "assistant", "content": "a", "tool_calls": []}) == b"assistant\0a" + end
    assert piece_of({"type": "call"}) == b'None\0{"type":"call"}' + end
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    assert piece_of({"role": "user", "content": deep}) == b"user\0" + end


@pytest.mark.parametrize("system", ["system", "developer"])
def test_thread_and_turn_are_of_the_talk_after_the_system_prompt(system: str) -> None:
    head, task, answer = _message(system, "s"), _message("user", "task"), _message("assistant", "answer")

    def ids(*messages: dict[str, Any]) -> tuple[int, int]:
        chain = chain_of_messages(KEY, b"m", messages)
        return chain.thread, chain.turn

    thread, turn = digest_of(KEY, b"task"), digest_of(KEY, b"answer")
    assert ids(head) == (0, 0)
    assert ids(head, task) == (thread, 0)
    assert ids(head, task, answer) == (thread, turn)
    assert ids(task, head, answer, _message("user", "more")) == (thread, turn)
    assert ids(answer, task) == (thread, 0)  # what stands before the task is no turn of its own
    assert ids(_message("user", "task", name="n")) == (thread, 0)
