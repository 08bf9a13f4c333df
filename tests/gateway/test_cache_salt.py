"""Where there is more than one tenant, none finds what another has in the engines' prefix caches."""

from pathlib import Path

import orjson
import pytest

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.engine.api import ApiReader, BadRequest
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import builtin_profile
from hmas.gateway.openai.body import CallRules, parse_call
from hmas.gateway.tenants.store import TenantStore


def store(tmp_path: Path, *names: str) -> TenantStore:
    file = tmp_path / "tenants.yaml"
    digests = (f"{number:064x}" for number in range(1, 9))
    keys = "".join(
        f'  {name}: {{keys: [{{id: {name}, name: k, sha256: "{digest}", created: 2026-11-20}}]}}\n'
        for name, digest in zip(names, digests, strict=False)
    )
    file.write_text(f"tenants:\n{keys}")
    return TenantStore(file)


def sent(rules: CallRules, **fields: object) -> dict[str, object]:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi " * 500}], **fields}
    found: dict[str, object] = orjson.loads(b"{" + parse_call(CHAT_PATH, orjson.dumps(body), rules).rest)
    return found


def salt_of(known: TenantStore, name: str) -> str:
    return known.cache_salt(known._table.tenants[name])


def test_tenants_have_salts_of_their_own_unless_there_is_but_one(tmp_path: Path) -> None:
    known = store(tmp_path, "acme", "globex")
    assert salt_of(known, "acme")
    assert salt_of(known, "acme") != salt_of(known, "globex")
    assert salt_of(store(tmp_path, "acme"), "acme") == ""


def test_the_salt_goes_to_the_engine_before_what_the_client_sets() -> None:
    assert sent(CallRules(cache_salt="a1"))["cache_salt"] == "a1"
    assert "cache_salt" not in sent(CallRules())
    hostile = CallRules(cache_salt="b2", allowed_fields=frozenset({"cache_salt"}))
    assert sent(hostile, cache_salt="a1")["cache_salt"] == "b2a1"


@pytest.mark.parametrize("other", ["", "b2"])
def test_an_emulated_engine_shares_no_block_between_salts(other: str) -> None:
    limits = builtin_profile("tiny-emulated").with_limits(enable_prefix_caching=True).limits
    reader = ApiReader("m", limits, OutputLength(10.0, 1.0, 0))

    def hashes(salt: str) -> set[int]:
        body = {"model": "m", "prompt": "word " * 400} | ({"cache_salt": salt} if salt else {})
        read = reader.read(orjson.dumps(body), COMPLETIONS_PATH)
        assert not isinstance(read, BadRequest)
        return set(read.prefix_hashes)

    assert hashes("a1")
    assert hashes("a1") == hashes("a1")
    assert not hashes("a1") & hashes(other)
