"""API keys in the tenants file, for `hmas keys`: made, listed and revoked in place, comments kept.

A key is shown once, when it is made; the file holds its SHA-256. The file is replaced atomically.
"""

import os
import secrets
import tempfile
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path

import yaml

from hmas.gateway.tenants.file import KEY_PREFIX, TenantFileError, TenantKey, TenantTable, parse_tenants


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
    key_id = digest.hex()[:8]
    fields = {"id": f"k{key_id}", "name": name, "sha256": digest.hex(), "created": date.today().isoformat()}
    entry = yaml.safe_dump(fields, default_flow_style=True, width=10_000, sort_keys=False).strip()
    edited = _with_key(text, tenant, entry)
    after = _reparsed(edited, f"add this to the keys of tenant `{tenant}` by hand: {entry}")
    if len(after.keys) != len(before.keys) + 1 or after.keys[digest].tenant != tenant:
        raise TenantFileError(f"cannot edit this layout; add this to the keys of tenant `{tenant}` by hand: {entry}")
    _replace(path, edited)
    return MadeKey(fields["id"], key, tenant not in before.tenants)


def list_keys(path: Path) -> list[TenantKey]:
    """Every key, in the file's order. Raises TenantFileError and OSError."""
    return list(parse_tenants(path.read_text()).keys.values())


def revoke_key(path: Path, key_id: str) -> TenantKey:
    """Takes a key out; what it was. Raises TenantFileError (also for an unknown id) and OSError."""
    text = path.read_text()
    found = next((key for key in parse_tenants(text).keys.values() if key.id == key_id), None)
    if found is None:
        raise TenantFileError(f"no key `{key_id}`; `hmas keys list` shows them")
    edited = _without_key(text, found)
    if found.digest in _reparsed(edited, f"delete key `{key_id}` by hand").keys:
        raise TenantFileError(f"cannot edit this layout; delete key `{key_id}` by hand")
    _replace(path, edited)
    return found


def _reparsed(text: str, advice: str) -> TenantTable:
    try:
        return parse_tenants(text)
    except TenantFileError as error:
        raise TenantFileError(f"cannot edit this layout ({error}); {advice}") from None


def _child(node: yaml.Node | None, name: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Key and value node of a mapping's entry."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key, value
    return None, None


def _with_key(text: str, tenant: str, entry: str) -> str:
    _, tenants = _child(yaml.compose(text, yaml.SafeLoader), "tenants")
    name = yaml.safe_dump(tenant, width=10_000).removesuffix("\n...\n").strip()
    if not isinstance(tenants, yaml.MappingNode) or not tenants.value:
        kept = "" if tenants is None and not text.strip() else text
        kept = kept if tenants is None else text[: text.index("tenants")] + text[tenants.end_mark.index :].lstrip()
        return f"{kept}{_newline(kept)}tenants:\n  {name}:\n    keys:\n      - {entry}\n"
    tenant_key, body = _child(tenants, tenant)
    if tenant_key is None or body is None:
        pad = " " * tenants.start_mark.column
        return _insert_line(text, tenants, f"{pad}{name}:\n{pad}  keys:\n{pad}    - {entry}")
    keys_key, keys = _child(body, "keys")
    if keys_key is not None and isinstance(keys, yaml.SequenceNode) and keys.value:
        if keys.flow_style:
            return f"{text[: keys.end_mark.index - 1]}, {entry}]{text[keys.end_mark.index :]}"
        return _insert_line(text, keys, f"{' ' * keys.start_mark.column}- {entry}")
    if keys_key is not None and keys is not None:
        pad = " " * (keys_key.start_mark.column + 2)
        return f"{text[: keys_key.end_mark.index]}:\n{pad}- {entry}{_rest(text, keys)}"
    if isinstance(body, yaml.MappingNode) and body.value and not body.flow_style:
        pad = " " * body.start_mark.column
        return _insert_line(text, body, f"{pad}keys:\n{pad}  - {entry}")
    if isinstance(body, yaml.MappingNode) and body.value:
        return f"{text[: body.end_mark.index - 1]}, keys: [{entry}]}}{text[body.end_mark.index :]}"
    pad = " " * (tenant_key.start_mark.column + 2)
    return f"{text[: tenant_key.end_mark.index]}:\n{pad}keys:\n{pad}  - {entry}{_rest(text, body)}"


def _without_key(text: str, key: TenantKey) -> str:
    _, tenants = _child(yaml.compose(text, yaml.SafeLoader), "tenants")
    _, body = _child(tenants, key.tenant)
    _, keys = _child(body, "keys")
    assert isinstance(keys, yaml.SequenceNode)  # a key was read from it
    items = keys.value
    at = next(i for i, item in enumerate(items) if getattr(_child(item, "id")[1], "value", None) == key.id)
    if not keys.flow_style:
        lines = text.splitlines(keepends=True)
        return "".join(lines[: items[at].start_mark.line] + lines[_last_line(items[at]) + 1 :])
    start = items[at - 1].end_mark.index if at else items[at].start_mark.index
    end = items[at].end_mark.index if at or len(items) == 1 else items[1].start_mark.index
    return text[:start] + text[end:]


def _insert_line(text: str, after: yaml.Node, line: str) -> str:
    lines = text.splitlines(keepends=True)
    at = _last_line(after)
    lines[at] += _newline(lines[at])
    return "".join([*lines[: at + 1], line + "\n", *lines[at + 1 :]])


def _last_line(node: yaml.Node) -> int:
    """Line of the node's last character; a block collection's own end mark stands beyond comments that follow it."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.line)


def _rest(text: str, empty: yaml.Node) -> str:
    """What follows an empty value, beginning with its line's end."""
    rest = text[empty.end_mark.index :]
    return rest if rest.startswith(("\n", " ")) else "\n" + rest


def _newline(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"


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
