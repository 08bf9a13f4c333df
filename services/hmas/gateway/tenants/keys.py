"""Makes, lists, rotates and revokes API keys in the tenants file, for `hmas keys`; the file's comments are kept.

A key is shown once, when it is made; the file holds only its SHA-256. The file is replaced atomically.
"""

import fcntl
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import SingleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from hmas.gateway.tenants.file import KEY_PREFIX, TenantFileError, TenantKey, parse_tenants
from hmas.gateway.tenants.terms import Tenant


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new API key. `key` is the secret that clients send; `id` is its public name in the file. `new_tenant`: the
    tenant was not in the file before."""

    id: str
    key: str
    new_tenant: bool


def make_key(path: Path, tenant: str, name: str = "", expires_s: float = inf) -> MadeKey:
    """Adds a new API key to the file and returns it. A missing tenant or file is created. `expires_s`: the Unix instant
    from which on the key is not valid any more.

    Raises TenantFileError if the file is invalid or its layout cannot be edited, and OSError if it cannot be read or
    written.
    """
    with _alone(path):
        text = path.read_text() if path.exists() else ""
        before = parse_tenants(text)
        made, secret = _new_key(tenant, name, expires_s)
        file = _TenantsText(text)
        file.add(made)
        _replace(path, file.checked(before.tenants, {**before.keys, made.digest: made}, _advice(made)))
    return MadeKey(made.id, secret, tenant not in before.tenants)


def rotate_key(path: Path, key_id: str, grace_s: float, expires_s: float = inf) -> MadeKey:
    """Adds a new API key of the same tenant and name, and lets the old one expire in `grace_s` seconds unless it does
    so earlier; returns the new key, which expires at the Unix instant `expires_s`.

    Raises TenantFileError if no key has this id, if the file is invalid or if its layout cannot be edited, and OSError
    if it cannot be read or written.
    """
    with _alone(path):
        text = path.read_text()
        before = parse_tenants(text)
        old = _find(before.keys, key_id)
        ending = _expiring(old, time.time() + grace_s)
        made, secret = _new_key(old.tenant, old.name, expires_s)
        file = _TenantsText(text)
        file.change(ending)
        file.add(made)
        keys = {**before.keys, old.digest: ending, made.digest: made}
        _replace(path, file.checked(before.tenants, keys, _advice(made)))
    return MadeKey(made.id, secret, False)


def _new_key(tenant: str, name: str, expires_s: float) -> tuple[TenantKey, str]:
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    digest = sha256(secret.encode()).digest()
    made = TenantKey(
        tenant=tenant,
        id=f"k{digest.hex()[:8]}",
        name=name,
        created=date.today().isoformat(),
        digest=digest,
        expires_s=expires_s,
    )
    return made, secret


def _expiring(key: TenantKey, at_s: float) -> TenantKey:
    return replace(key, expires_s=min(key.expires_s, float(int(at_s))))


def _find(keys: dict[bytes, TenantKey], key_id: str) -> TenantKey:
    found = next((key for key in keys.values() if key.id == key_id), None)
    if found is None:
        raise TenantFileError(f"no API key has the id `{key_id}`: `hmas keys list` shows the ids")
    return found


def _advice(made: TenantKey) -> str:
    return f"add this to the keys of tenant `{made.tenant}` by hand: {{id: {made.id}, sha256: '{made.digest.hex()}'}}"


def list_keys(path: Path) -> list[TenantKey]:
    """Returns all API keys in the order of the file. Raises TenantFileError if the file is invalid, and OSError if it
    cannot be read."""
    return list(parse_tenants(path.read_text()).keys.values())


def revoke_key(path: Path, key_id: str) -> TenantKey:
    """Removes the API key with this id from the file and returns it. The last key of a file stays there as one that has
    expired, because gateways refuse a file that lost all its keys.

    Raises TenantFileError if no key has this id, if the file is invalid or if its layout cannot be edited, and OSError
    if it cannot be read or written.
    """
    with _alone(path):
        text = path.read_text()
        before = parse_tenants(text)
        found = _find(before.keys, key_id)
        file = _TenantsText(text)
        kept = {digest: key for digest, key in before.keys.items() if key is not found}
        if kept:
            file.remove(found)
        else:
            kept[found.digest] = _expiring(found, time.time())
            file.change(kept[found.digest])
        _replace(path, file.checked(before.tenants, kept, f"delete key `{key_id}` by hand"))
    return found


class _TenantsText:
    """The text of a tenants file as a document that can be edited and keeps its comments and its layout."""

    def __init__(self, text: str) -> None:
        """`text` must be valid for `parse_tenants`. Raises TenantFileError if its layout cannot be edited."""
        self._text = text
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 10_000
        try:
            root, _, dash = load_yaml_guess_indent(text, yaml=self._yaml)
        except YAMLError as error:
            raise TenantFileError(
                f"the file cannot be read as YAML and was not changed; change it by hand: {error}"
            ) from None
        self._head = text if root is None else ""  # a text of comments alone has no document to keep them
        self._root = CommentedMap() if root is None else root
        tenants, dash = self._root.get("tenants"), 2 if dash is None else dash
        is_block = isinstance(tenants, CommentedMap) and not tenants.fa.flow_style()
        self._yaml.indent(mapping=tenants.lc.col if is_block else 2, sequence=dash + 2, offset=dash)

    def add(self, key: TenantKey) -> None:
        tenants = _section(self._root, "tenants", CommentedMap)
        _section(_section(tenants, key.tenant, CommentedMap), "keys", CommentedSeq).append(_entry(key))

    def change(self, key: TenantKey) -> None:
        """Sets when a key expires."""
        keys = self._root["tenants"][key.tenant]["keys"]
        entry = next(each for each in keys if str(each["id"]) == key.id)
        entry["expires"] = _entry(key)["expires"]

    def remove(self, key: TenantKey) -> None:
        """Removes a key; the comments that stood at it move above all keys of its tenant."""
        body = self._root["tenants"][key.tenant]
        at = next(i for i, each in enumerate(body["keys"]) if str(each["id"]) == key.id)
        del body["keys"][at]
        if not body["keys"]:
            body["keys"] = None
        lost = Counter(_comments(self._text)) - Counter(_comments(self._edited()))
        if lost:
            body.yaml_set_comment_before_after_key("keys", before="\n".join(lost.elements()), indent=body.lc.col)

    def _edited(self) -> str:
        out = StringIO()
        self._yaml.dump(self._root, out)
        return self._head + out.getvalue()

    def checked(self, tenants: dict[str, Tenant], keys: dict[bytes, TenantKey], advice: str) -> str:
        """Returns the edited text after reading it back. Raises TenantFileError, with `advice` on what to do by hand,
        if it does not hold exactly `keys` and at least `tenants`."""
        text = self._edited()
        try:
            table = parse_tenants(text)
        except TenantFileError as error:
            raise TenantFileError(
                f"the file was not changed, because editing it would break it ({error}); {advice}"
            ) from None
        if table.keys != keys or {**table.tenants, **tenants} != table.tenants:
            raise TenantFileError(
                f"the file was not changed, because editing it would also change other tenants or keys; {advice}"
            )
        return text


def _comments(text: str) -> list[str]:
    """Returns the texts of the lines that hold nothing but a comment."""
    return [line.strip().removeprefix("#").strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _entry(key: TenantKey) -> CommentedMap:
    fields = {"id": key.id, "name": key.name, "sha256": key.digest.hex(), "created": key.created}
    if key.expires_s != inf:
        fields["expires"] = told_instant(key.expires_s)
    entry = CommentedMap((field, _text(value)) for field, value in fields.items())
    entry.fa.set_flow_style()
    return entry


def told_instant(unix_s: float) -> str:
    """Returns a Unix instant as ISO 8601 in UTC, to the second; an infinite one as an empty text."""
    return "" if unix_s == inf else datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def _section(parent: CommentedMap, name: str, kind: type[Any]) -> Any:
    """Returns the mapping or list under `name`, which is created if it is missing or null. An empty one is set to be
    written in block style, one entry a line."""
    if parent.get(name) is None:
        parent[_text(name)] = kind()
    section = parent[name]
    if not section:
        section.fa.set_block_style()
    return section


def _text(value: str) -> str:
    """Returns the value in quotes if YAML 1.1, which gateways read, would otherwise not take it for a text."""
    return SingleQuotedScalarString(value) if yaml.safe_dump(value).startswith(("'", '"')) else value


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until nobody else edits a file of this folder: of two who read it before either wrote, the second would
    undo what the first did, such as a revocation."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, text: str) -> None:
    """Replaces the file atomically. Its permissions are kept; a new file is readable by its owner alone."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
