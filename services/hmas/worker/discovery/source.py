"""The sources of engines that HMAS_ENGINES may name in place of a list of URLs."""

import re
from dataclasses import dataclass
from pathlib import Path

from hmas.laws.hosts import can_be_resolved

SOURCES = (
    "dns+http://HOST:PORT, file+PATH, or kubernetes+http://[NAMESPACE][:PORT]/LABEL=VALUE[,LABEL=VALUE...] for "
    "EndpointSlices"
)
_KUBERNETES = re.compile(r"([a-z0-9-]*)(?::(\d{1,5}))?/([A-Za-z0-9_./=!,() -]+)")


@dataclass(frozen=True, slots=True)
class DnsSource:
    """All addresses of `host`, each an engine at `port`."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FileSource:
    """A YAML or JSON file with a list of engines, each a URL or an object as in HMAS_ENGINES."""

    path: Path


@dataclass(frozen=True, slots=True)
class KubernetesSource:
    """The ready endpoints of the EndpointSlices with these labels. `namespace` "": the pod's own. `port` None: the one
    that a slice names."""

    selector: str
    namespace: str = ""
    port: int | None = None


EngineSource = DnsSource | FileSource | KubernetesSource


def source_of(text: str) -> EngineSource | None:
    """Returns the source that the value of HMAS_ENGINES names, None if it is a list of engines. Raises ValueError if
    it names none in a form that is known."""
    kind, plus, rest = text.strip().partition("+")
    if not plus or kind not in ("dns", "file", "kubernetes"):
        return None
    if kind == "file":
        if rest.strip():
            return FileSource(Path(rest.removeprefix("//")))
    else:
        scheme, _, place = rest.partition("://")
        if scheme == "https":
            raise ValueError(
                "engines that are found by their addresses are reached by http; list them in a file+ for TLS"
            )
        found = _dns(place) if kind == "dns" else _kubernetes(place)
        if scheme == "http" and found is not None:
            return found
    raise ValueError(f"{text!r} is not a source of engines: give {SOURCES}")


def _dns(place: str) -> DnsSource | None:
    host, _, port = place.rstrip("/").rpartition(":")
    return DnsSource(host, int(port)) if can_be_resolved(host) and _is_port(port) and "/" not in host else None


def _kubernetes(place: str) -> KubernetesSource | None:
    found = _KUBERNETES.fullmatch(place)
    if found is None:
        return None
    namespace, port, selector = found.groups()
    if port is not None and not _is_port(port):
        return None
    return KubernetesSource(selector, namespace, int(port) if port else None)


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 65_536
