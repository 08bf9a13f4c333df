"""The chained hash of a prompt: what is equal, what parts, and what is bounded."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.prefix_chain import (
    BLOCK_BYTES,
    MAX_BYTES,
    MAX_NODES,
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
