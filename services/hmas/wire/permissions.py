"""Who may do what on NATS: one user for each service and one for the operator's commands, each with the subjects that
it may publish and hear. The table is made from the routes and the bucket's keys; `docs/subjects.md` and the
configurations of `hmas up`, Compose and Kubernetes are made from it.

JetStream answers to whatever subject a request names, so that the right to ask it for raw messages would be the right
to publish anything. Nobody has it: values are read with the request whose answer is JSON, which no service decodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hmas.contracts.routes import ROUTES, Role
from hmas.wire.subjects import (
    AUDIT_STREAM,
    CONTROL_BUCKET,
    GAIN_STREAM,
    KEYS,
    LEASE_BUCKET,
    PAST_BUCKET,
    QUERY_EFFECTS,
    QUERY_JOBS,
    QUERY_PAST,
    QUERY_QUEUE,
    QUERY_WHY,
    Key,
    pattern,
)

OPERATOR = "operator"
_COMMANDS = (Role.PIN, Role.TOP, Role.CONSOLE)
SERVICES = tuple(role for role in Role if role not in _COMMANDS)
# They write to the buckets, and make those that are missing. Workers make the leases' alone, which NATS loses at a
# restart, when no agent may be there.
_MAKERS = (Role.QOS, Role.META, Role.STATERA)
_MAKERS_OF = {CONTROL_BUCKET: _MAKERS, LEASE_BUCKET: (*_MAKERS, Role.WORKER), PAST_BUCKET: _MAKERS}
_STREAMS = (AUDIT_STREAM, GAIN_STREAM)  # the meta controller's, which operators read
_RESPONSES = {"max": 1, "expires": "10s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsUser:
    """The permissions of one user of NATS: subjects that it may publish and hear. `answers`: it may answer each request
    that it hears once."""

    name: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool

    def permissions(self) -> dict[str, Any]:
        """Returns the permissions in the form of NATS's configuration."""
        publish = {"allow": list(self.publish)} if self.publish else {"deny": [">"]}
        responses = {"allow_responses": _RESPONSES} if self.answers else {}
        return {"publish": publish, "subscribe": {"allow": list(self.subscribe)}, **responses}


def inbox(user: str) -> str:
    """Returns the prefix of the subjects on which a user gets the answers to its requests. Each user has its own,
    because it may hear all subjects under it."""
    return f"_INBOX.{user}"


def _user(name: str, roles: tuple[Role, ...]) -> NatsUser:
    publish = [pattern(route) for route in ROUTES if set(roles) & set(route.publishers)]
    heard = [pattern(route) for route in ROUTES if any(hearer.role in roles for hearer in route.hearers)]
    if name == OPERATOR:
        publish += [QUERY_WHY, QUERY_QUEUE, QUERY_JOBS, QUERY_EFFECTS, QUERY_PAST]
        publish += [f"$JS.API.STREAM.{verb}.{name}" for name in _STREAMS for verb in ("INFO", "MSG.GET")]
    else:
        heard += [QUERY_WHY, QUERY_JOBS] if Role.GATEWAY in roles else []
        heard += [QUERY_QUEUE] if Role.WORKER in roles else []
        heard += [QUERY_PAST] if Role.QOS in roles else []
        heard.append(QUERY_EFFECTS)
        publish += [QUERY_PAST] if Role.META in roles else []
    publish += _bucket_subjects(roles)
    return NatsUser(name=name, publish=tuple(publish), subscribe=(*heard, f"{inbox(name)}.>"), answers=name != OPERATOR)


def _bucket_subjects(roles: tuple[Role, ...]) -> list[str]:
    """Returns the subjects by which these roles make, read and write what JetStream keeps."""
    subjects: list[str] = []
    for bucket in (CONTROL_BUCKET, LEASE_BUCKET, PAST_BUCKET):
        keys = [key for key in KEYS if key.bucket == bucket]
        written = [key for key in keys if set(roles) & set(key.writers)]
        read = [key for key in keys if set(roles) & set(key.readers)]
        subjects += [f"$KV.{bucket}.{_key_pattern(key)}" for key in written]
        if written or read:
            subjects.append(f"$JS.API.STREAM.INFO.KV_{bucket}")
        if read:
            subjects.append(f"$JS.API.STREAM.MSG.GET.KV_{bucket}")
        if written and set(roles) & set(_MAKERS_OF[bucket]):
            subjects.append(f"$JS.API.STREAM.CREATE.KV_{bucket}")
    if Role.META in roles:
        subjects += [f"$JS.API.STREAM.{verb}.{name}" for name in _STREAMS for verb in ("CREATE", "UPDATE")]
    return subjects


def _key_pattern(key: Key) -> str:
    return f"{key.name}.>" if key.about else key.name


USERS: tuple[NatsUser, ...] = (*(_user(role.value, (role,)) for role in SERVICES), _user(OPERATOR, _COMMANDS))


def authorization(passwords: Mapping[str, str]) -> dict[str, Any]:
    """Returns the part `authorization` of NATS's configuration: every user with its password and permissions."""
    users = [{"user": user.name, "password": passwords[user.name], "permissions": user.permissions()} for user in USERS]
    return {"users": users}
