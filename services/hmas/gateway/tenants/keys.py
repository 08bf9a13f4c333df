"""API keys in the tenants file, for `hmas keys`: made, listed and revoked in place, comments kept.

A key is shown once, when it is made; the file holds its SHA-256. The file is replaced atomically.
"""

import os
import secrets
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from io import StringIO
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
    """`key` is the secret itself. `new_tenant`: the tenant was not in the file before."""

    id: str
    key: str
    new_tenant: bool


def make_key(path: Path, tenant: str, name: str = "") -> MadeKey:
    """Adds a key, and the tenant and the file where they are missing. Raises TenantFileError and OSError."""
    text = path.read_text() if path.exists() else ""
    before = parse_tenants(text)
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    digest = sha256(key.encode()).digest()
    made = TenantKey(
        tenant=tenant, id=f"k{digest.hex()[:8]}", name=name, created=date.today().isoformat(), digest=digest
    )
    file = _TenantsText(text)
    file.add(made)
    advice = f"add this to the keys of tenant `{tenant}` by hand: {{id: {made.id}, sha256: '{digest.hex()}'}}"
    _replace(path, file.checked(before.tenants, {**before.keys, digest: made}, advice))
    return MadeKey(made.id, key, tenant not in before.tenants)


def list_keys(path: Path) -> list[TenantKey]:
    """Every key, in the file's order. Raises TenantFileError and OSError."""
    return list(parse_tenants(path.read_text()).keys.values())


def revoke_key(path: Path, key_id: str) -> TenantKey:
    """Takes a key out; what it was. Raises TenantFileError (also for an unknown id) and OSError."""
    text = path.read_text()
    before = parse_tenants(text)
    found = next((key for key in before.keys.values() if key.id == key_id), None)
    if found is None:
        raise TenantFileError(f"no key `{key_id}`; `hmas keys list` shows them")
    file = _TenantsText(text)
    file.remove(found)
    kept = {digest: key for digest, key in before.keys.items() if key is not found}
    _replace(path, file.checked(before.tenants, kept, f"delete key `{key_id}` by hand"))
    return found


class _TenantsText:
    """The file's text as a document that remembers its comments and its layout."""

    def __init__(self, text: str) -> None:
        """`text` is one that `parse_tenants` accepts. Raises TenantFileError."""
        self._text = text
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 10_000
        try:
            root, _, dash = load_yaml_guess_indent(text, yaml=self._yaml)
        except YAMLError as error:
            raise TenantFileError(f"cannot edit this layout: {error}") from None
        self._head = text if root is None else ""  # comments alone are no document
        self._root = CommentedMap() if root is None else root
        tenants, dash = self._root.get("tenants"), 2 if dash is None else dash
        is_block = isinstance(tenants, CommentedMap) and not tenants.fa.flow_style()
        self._yaml.indent(mapping=tenants.lc.col if is_block else 2, sequence=dash + 2, offset=dash)

    def add(self, key: TenantKey) -> None:
        tenants = _section(self._root, "tenants", CommentedMap)
        _section(_section(tenants, key.tenant, CommentedMap), "keys", CommentedSeq).append(_entry(key))

    def remove(self, key: TenantKey) -> None:
        """Comments that stood at the key move above all keys of its tenant."""
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
        """The edited text. Raises TenantFileError, with advice, unless it reads as these keys and at least these
        tenants."""
        text = self._edited()
        try:
            table = parse_tenants(text)
        except TenantFileError as error:
            raise TenantFileError(f"cannot edit this layout ({error}); {advice}") from None
        if table.keys != keys or {**table.tenants, **tenants} != table.tenants:
            raise TenantFileError(f"cannot edit this layout; {advice}")
        return text


def _comments(text: str) -> list[str]:
    """Lines that are nothing but a comment."""
    return [line.strip().removeprefix("#").strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _entry(key: TenantKey) -> CommentedMap:
    fields = {"id": key.id, "name": key.name, "sha256": key.digest.hex(), "created": key.created}
    entry = CommentedMap((field, _text(value)) for field, value in fields.items())
    entry.fa.set_flow_style()
    return entry


def _section(parent: CommentedMap, name: str, kind: type[Any]) -> Any:
    """The mapping or list under `name`, made where it is missing or null; an empty one is written as a block."""
    if parent.get(name) is None:
        parent[_text(name)] = kind()
    section = parent[name]
    if not section:
        section.fa.set_block_style()
    return section


def _text(value: str) -> str:
    """Quoted where the YAML 1.1 that gateways read would take it for something else than text."""
    return SingleQuotedScalarString(value) if yaml.safe_dump(value).startswith(("'", '"')) else value


def _replace(path: Path, text: str) -> None:
    """Readable by its owner alone, unless the file was open to others before."""
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
