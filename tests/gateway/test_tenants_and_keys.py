import os
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from math import inf
from pathlib import Path

import pytest

from hmas.contracts.gateway import ClassWeight, TenantLimits
from hmas.contracts.request import TaskType
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.tenants.file import TenantFileError, parse_tenants
from hmas.gateway.tenants.keys import list_keys, make_key, revoke_key, rotate_key
from hmas.gateway.tenants.store import KEYLESS, TenantStore
from hmas.gateway.tenants.terms import SloBounds

DIGEST = sha256(b"hmas-one").hexdigest()
FULL = f"""\
# our tenants
tenants:
  acme:                 # the good one
    weight: 2
    priority_ceiling: -10
    slo: {{ttft_ms: 2000, tpot_ms: 60, ttlt_ms: 60000}}
    slo_min: {{ttft_ms: 500, tpot_ms: 20}}
    slo_max: {{ttft_ms: 30000}}
    allowed_body_fields: [cache_salt, vllm_xargs]
    importance: 0.9
    requests_per_min: 600
    tokens_per_min: 1.0e+6
    max_in_flight: 64
    max_queued: 32
    on_miss: refuse
    models: [llama]
    keys:
      - {{id: k1, name: laptop, sha256: "{DIGEST}", created: 2026-11-20}}
      # kept comment
  # before zeta
  zeta:
"""


def test_a_full_file() -> None:
    table = parse_tenants(FULL)
    acme = table.tenants["acme"]
    assert (acme.weight, acme.priority_ceiling, acme.importance, acme.relegate) == (2, -10, 0.9, False)
    assert acme.slo_bounds == SloBounds((0.5, 30.0), (0.02, None), (None, None))
    assert acme.allowed_body_fields == {"cache_salt", "vllm_xargs"}
    assert (acme.ttft_s, acme.tpot_s, acme.ttlt_s, acme.models) == (2.0, 0.06, 60.0, frozenset({"llama"}))
    assert table.limits() == (
        TenantLimits(tenant="acme", requests_per_min=600, tokens_per_min=1e6, max_in_flight=64, max_queued=32),
        TenantLimits(tenant="zeta"),
    )
    found = table.find(b"hmas-one")
    assert found is not None
    assert (found.tenant, found.id, found.expires_s) == ("acme", "k1", inf)
    assert table.find(b"hmas-two") is None


def test_weights_of_task_types() -> None:
    assert parse_tenants("classes:\n  Dialogue: 2\n  unknown: 0.5\n").classes == (
        ClassWeight(TaskType.DIALOGUE, 2.0),
        ClassWeight(TaskType.UNKNOWN, 0.5),
    )


@pytest.mark.parametrize("text", ["", "tenants:\n", "tenants: {}\n", "# nothing\n"])
def test_an_empty_file_knows_nobody(text: str) -> None:
    assert parse_tenants(text).tenants == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tenants: [", "not valid YAML"),
        ("[]", "line 1, top level: must be a mapping"),
        ("tenant: {}", "line 1, tenant: unknown field: the fields here are classes, tenants"),
        ("classes: 2", "line 1, classes: must be a mapping of task types to weights"),
        ("classes: {Dialog: 2}", "line 1, classes: `Dialog` is not a task type: choose one of QA, Dialogue"),
        ("classes: {Dialogue: 0}", "the weight of Dialogue must be a number from 0.001"),
        ("classes: {Dialogue: true}", "the weight of Dialogue must be a number"),
        (
            "tenants:\n  a:\n    slo_min: {ttft_ms: 50}\n    slo_max: {ttft_ms: 5}",
            "line 4, tenants.a.slo_max: `ttft_ms` is 5, below that of `slo_min`, which is 50",
        ),
        ("tenants:\n  a:\n    allowed_body_fields: [seed]", "allowed_body_fields: must be a list of some of: kv_"),
        (f"tenants:\n  a:\n    keys: [{{id: k, sha256: '{DIGEST}', expires: soon}}]", "must be a date or an instant"),
        ("tenants:\n  a:\n    wieght: 1", "line 3, tenants.a.wieght: unknown field"),
        ("tenants:\n  a:\n    weight: 0", "line 3, tenants.a.weight: must be a number from 0.001"),
        ("tenants:\n  a:\n    slo: {ttft_ms: -1}", "line 3, tenants.a.slo.ttft_ms: must be a number"),
        ("tenants:\n  a:\n    slo: {tfft_ms: 1}", "tenants.a.slo.tfft_ms: unknown field"),
        ("tenants:\n  a:\n    weight: .nan", "tenants.a.weight: must be a number"),
        ("tenants:\n  a:\n    weight: yes", "tenants.a.weight: must be a number"),
        ("tenants:\n  a:\n    max_queued: 1.5", "tenants.a.max_queued: must be a whole number"),
        ("tenants:\n  a:\n    on_miss: drop", "must be `relegate` or `refuse`"),
        ("tenants:\n  a:\n    models: llama", "must be a list of model names"),
        ("tenants:\n  a:\n    importance: 2", "from 0.5 to 1"),
        ("tenants:\n  a:\n  a:\n", "line 3, tenants.a: this name is given twice"),
        ("tenants:\n  7: {}\n", "line 2, tenants.7: a name must be a text"),
        ("tenants:\n  a: {}\n  other: {weight: 5}\n", "line 3, tenants.other: views and metrics count under this name"),
        ("tenants:\n  a: 5\n", "line 2, tenants.a: must be a mapping"),
        ("tenants:\n  a:\n    keys: secret\n", "must be a list of API keys"),
        ("tenants:\n  a:\n    keys:\n      - {id: k1}\n", "line 4, tenants.a.keys: an API key needs"),
        ("tenants:\n  a:\n    keys:\n      - {id: k1, sha256: abc}\n", "must be the SHA-256 of an API key"),
        (f"tenants:\n  a:\n    keys:\n      - {{id: k, sha256: {DIGEST}}}\n      - {{id: k, sha256: {DIGEST}}}\n",
         "line 5, tenants.a.keys: the id or sha256 of key `k` is in the file twice"),
        ("tenants:\n  a:\n    max_queued: 1e6", "must be a whole number from 0 to 1e+09, not '1e6'"),
    ],
)  # fmt: skip
def test_faults_name_line_and_field(text: str, problem: str) -> None:
    with pytest.raises(TenantFileError) as caught:
        parse_tenants(text)
    assert problem in str(caught.value)


def test_all_faults_are_told_in_the_order_of_the_file() -> None:
    with pytest.raises(TenantFileError) as caught:
        parse_tenants("tenants:\n  a:\n    on_miss: drop\n    weight: 0\n    keys:\n      - 5\n")
    told = str(caught.value).split("; ")
    assert [each.partition(":")[0] for each in told] == [
        "line 3, tenants.a.on_miss", "line 4, tenants.a.weight", "line 6, tenants.a.keys",
    ]  # fmt: skip


def test_an_alias_is_read_as_its_anchor_and_one_inside_itself_is_a_fault() -> None:
    table = parse_tenants("tenants:\n  a: &a\n    max_queued: 3\n  b: *a\n")
    assert [limits.max_queued for limits in table.limits()] == [3, 3]
    with pytest.raises(TenantFileError, match=r"line 2, tenants\.a\.a: unknown field"):
        parse_tenants("tenants: &t\n  a: *t\n")


def test_a_merge_gives_what_the_mapping_itself_does_not() -> None:
    text = "tenants:\n  a: &a {max_queued: 3, weight: 2}\n  c: &c {max_queued: 4, max_in_flight: 9}\n"
    table = parse_tenants(text + "  b: {<<: *a, weight: 3}\n  d: {weight: 5, <<: [*a, *c]}\n")
    assert [table.tenants[name].weight for name in "abcd"] == [2, 3, 1, 5]
    assert [each.max_queued for each in table.limits()] == [3, 4, 3, 3]
    assert table.tenants["d"].limits.max_in_flight == 9
    with pytest.raises(TenantFileError, match=r"line 5, tenants\.b\.weight: this name is given twice"):
        parse_tenants(text + "  b: {<<: *a, weight: 3,\n    weight: 3}\n")


def test_a_text_left_blank_is_empty_and_a_key_needs_an_id() -> None:
    def key(fields: str) -> str:
        return f"tenants:\n  a:\n    keys:\n      - {{sha256: {DIGEST}, {fields}}}\n"

    (found,) = parse_tenants(key("id: 7, name: , created: 2026-11-20")).keys.values()
    assert (found.id, found.name, found.created) == ("7", "", "2026-11-20")
    for field in ("id: ", "id: []", "id: k, name: {}"):
        with pytest.raises(TenantFileError, match=r"line 4, tenants\.a\.keys\.(id|name): must be a text"):
            parse_tenants(key(field))


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


def test_authentication(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(FULL)
    store = TenantStore(path)
    assert store.authenticate(bearer("hmas-one")).tenant.name == "acme"
    assert store.authenticate({b"authorization": b"bearer  hmas-one"}).tenant.name == "acme"
    for headers in ({}, bearer("hmas-two"), {b"authorization": b"hmas-one"}, bearer("x" * 10_000), bearer("")):
        with pytest.raises(InvalidRequest) as caught:
            store.authenticate(headers)
        assert caught.value.error.status == 401
        assert "hmas-two" not in str(caught.value)


def test_a_key_may_come_as_x_api_key(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(FULL)
    store = TenantStore(path)
    assert store.authenticate({b"x-api-key": b"hmas-one"}).key == "k1"
    assert store.authenticate({b"authorization": b"Basic x", b"x-api-key": b"hmas-one"}).key == "k1"
    assert store.authenticate({**bearer("hmas-one"), b"x-api-key": b"other"}).key == "k1"
    for headers in ({b"x-api-key": b"hmas-two"}, {b"x-api-key": b""}, {**bearer("no"), b"x-api-key": b"hmas-one"}):
        with pytest.raises(InvalidRequest) as caught:
            store.authenticate(headers)
        assert caught.value.error.status == 401


def test_without_a_file_everyone_is_the_default_tenant() -> None:
    store = TenantStore(None)
    assert store.authenticate({}).tenant is KEYLESS
    assert not store.poll()


def test_the_file_is_read_again_and_a_bad_one_ignored(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(FULL)
    store = TenantStore(path)
    assert not store.poll()
    path.write_text(FULL.replace(DIGEST, sha256(b"hmas-two").hexdigest()))
    assert store.poll()
    with pytest.raises(InvalidRequest):
        store.authenticate(bearer("hmas-one"))
    path.write_text("tenants: [oops")
    assert not store.poll()
    assert not store.poll()  # reported once
    path.write_text(FULL)
    assert store.poll()
    path.unlink()
    assert not store.poll()
    assert store.authenticate(bearer("hmas-one")).tenant.name == "acme"


def test_a_bad_file_at_start_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    with pytest.raises(OSError, match="tenants"):
        TenantStore(path)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(TenantFileError, match=r"tenants\.yaml"):
        TenantStore(path)


LAYOUTS = [
    "",
    "# comment\n",
    "tenants:\n",
    "tenants: {}\n",
    "tenants: {}",
    "tenants:\n  acme:\n",
    "tenants:\n  acme:",
    "tenants:\n  acme: {}\n  zeta:\n    weight: 1\n",
    "tenants:\n  acme: {weight: 2}\n",
    "tenants:\n  acme:\n    weight: 2 # heavy\n# end\n",
    "tenants:\n  acme:\n    keys:\n    weight: 2\n",
    "tenants:\n  acme:\n    keys: []\n    weight: 2",
    "tenants:\n  acme:\n    keys: [] # none yet\n",
    "tenants:\n  zeta:\n    models:\n      - a\n\n# last\n",
    f"tenants:\n  acme:\n    keys: [{{id: k1, sha256: '{DIGEST}'}}]\n",
    f"tenants:\n  acme:\n    keys:\n    - id: k1\n      sha256: '{DIGEST}'\n    weight: 3\n",
    f"""\
# our tenants
tenants:
    acme:
        keys:
            # comment
            - {{id: k1, sha256: '{DIGEST}'}}
            # kept comment
            - id: k2
              sha256: '{sha256(b"hmas-two").hexdigest()}'
            # last
    # before zeta
    zeta: {{weight: 010}}
""",
    FULL,
]


def standing_comments(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if line.strip().startswith("#"))


@pytest.mark.parametrize("text", LAYOUTS)
def test_comments_outlive_the_keys_that_they_stand_at(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)
    for key in list_keys(path):
        revoke_key(path, key.id)
    assert all(key.expires_s <= time.time() for key in list_keys(path))  # of the last one
    assert len(list_keys(path)) <= 1
    assert standing_comments(path.read_text()) == standing_comments(text)


@pytest.mark.parametrize("name", ["yes", "1e6", "2026-11-20", "a: b", "#x", "~", "0x1f", "'", "a\tb", "Löwe"])
def test_names_that_yaml_would_take_for_something_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    made = make_key(path, name, name)
    assert [(key.id, key.tenant, key.name) for key in list_keys(path)] == [(made.id, name, name)]
    revoke_key(path, made.id)
    assert list(parse_tenants(path.read_text()).tenants) == [name]


@pytest.mark.parametrize("text", LAYOUTS)
def test_keys_are_made_and_revoked_in_any_layout(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    if text:
        path.write_text(text)
    before = parse_tenants(text)
    first = make_key(path, "acme", "ci: main")
    second = make_key(path, "acme")
    assert first.new_tenant is ("acme" not in before.tenants)
    assert not second.new_tenant
    store = TenantStore(path)
    assert store.authenticate(bearer(first.key)).tenant.name == "acme"
    assert first.key not in path.read_text()
    assert [k.id for k in list_keys(path)][-2:] == [first.id, second.id]
    assert list_keys(path)[-2].name == "ci: main"
    for comment in ("# comment", "# heavy", "# end", "# none yet", "# last", "# kept comment", "# before zeta"):
        assert (comment in path.read_text()) is (comment in text)
    revoke_key(path, first.id)
    assert store.poll()
    with pytest.raises(InvalidRequest):
        store.authenticate(bearer(first.key))
    assert store.authenticate(bearer(second.key)).tenant.name == "acme"
    revoke_key(path, second.id)
    after = parse_tenants(path.read_text())
    assert standing_comments(path.read_text()) == standing_comments(text)
    if before.keys:
        assert after.keys == before.keys
    else:  # the last one stays, so that the file still has a key
        assert [(key.id, key.expires_s <= time.time()) for key in after.keys.values()] == [(second.id, True)]
    assert store.poll()
    with pytest.raises(InvalidRequest, match=r"not valid|has expired"):
        store.authenticate(bearer(second.key))
    assert {n: t for n, t in after.tenants.items() if n in before.tenants} == before.tenants
    with pytest.raises(TenantFileError, match="no API key"):
        revoke_key(path, first.id)


def test_the_first_of_several_keys_is_revoked(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    other = sha256(b"hmas-two").hexdigest()
    path.write_text(f"tenants:\n  a:\n    keys: [{{id: k1, sha256: '{DIGEST}'}}, {{id: k2, sha256: '{other}'}}]\n")
    assert revoke_key(path, "k1").tenant == "a"
    assert [k.id for k in list_keys(path)] == ["k2"]


def test_a_new_file_is_the_owners_alone_and_an_old_mode_stays(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    make_key(path, "acme")
    assert path.stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o640)
    make_key(path, "acme")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["tenants.yaml"]


def test_a_key_expires(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    now_s = 1_800_000_000.0
    made = make_key(path, "acme", expires_s=now_s + 10)
    path.write_text(path.read_text() + "  # the end\n")
    store = TenantStore(path, lambda: now_s)
    assert store.authenticate(bearer(made.key)).key == made.id
    assert store.holds(made.id)
    now_s += 10
    with pytest.raises(InvalidRequest, match=f"{made.id} has expired") as caught:
        store.authenticate(bearer(made.key))
    assert caught.value.error.status == 401
    assert not store.holds(made.id)


@pytest.mark.parametrize(
    ("expires", "unix_s"),
    [
        ("2027-01-31", 1801353600),
        ("'2027-01-31'", 1801353600),
        ("2027-01-31T12:00:00Z", 1801396800),
        ("2027-01-31 12:00:00", 1801396800),
        ("2027-01-31T12:00:00+02:00", 1801389600),
    ],
)
def test_when_a_key_expires(expires: str, unix_s: float) -> None:
    text = f"tenants: {{a: {{keys: [{{id: k, sha256: '{DIGEST}', expires: {expires}}}]}}}}"
    assert [key.expires_s for key in parse_tenants(text).keys.values()] == [unix_s]


@pytest.mark.parametrize("text", LAYOUTS)
def test_a_rotated_key_works_for_a_while_beside_the_new_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)
    old = make_key(path, "acme", "laptop")
    new = rotate_key(path, old.id, 3600.0)
    now_s = time.time()
    store = TenantStore(path, lambda: now_s)
    assert [store.authenticate(bearer(each.key)).tenant.name for each in (old, new)] == ["acme", "acme"]
    assert [key.name for key in list_keys(path) if key.id in (old.id, new.id)] == ["laptop", "laptop"]
    assert standing_comments(path.read_text()) == standing_comments(text)
    now_s += 3601
    assert [store.holds(each.id) for each in (old, new)] == [False, True]
    again = rotate_key(path, old.id, 10**6)
    assert [key.expires_s < now_s for key in list_keys(path) if key.id == old.id] == [True]  # never later than it was
    assert len({old.id, new.id, again.id}) == 3


def test_who_edits_at_once_undoes_nothing(tmp_path: Path) -> None:
    """Of two who have read the file before either wrote it, the second would write it without the first one's key, or
    with a key that the first one revoked."""
    file = tmp_path / "tenants.yaml"
    old = [make_key(file, "acme").id for _ in range(12)]
    with ThreadPoolExecutor(24) as pool:
        made = [pool.submit(make_key, file, f"tenant-{number}") for number in range(12)]
        ended = [pool.submit(revoke_key, file, each) for each in old]
    assert {each.result().id for each in ended} == set(old)
    assert {key.id for key in list_keys(file)} == {each.result().id for each in made}
