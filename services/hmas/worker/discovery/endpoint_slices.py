"""The engines that Kubernetes EndpointSlices name, from a list of them and the changes that a watch tells."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hmas.worker.engine_fields import EngineRole

ROLE_LABEL = "llm-d.ai/role"  # of a Service, whose slices have its labels
_ROLES: dict[str, EngineRole] = {"prefill": "prefill", "decode": "decode", "prefill-decode": "", "both": ""}


@dataclass(frozen=True, slots=True)
class ReadyEndpoint:
    """An endpoint that is ready. `fault` says why the labels of its slices give it no role, "" if nothing is wrong."""

    url: str
    role: EngineRole = ""
    fault: str = ""


class EndpointSlices:
    """The EndpointSlices known, by name, and the resource version from which a watch goes on."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._slices: dict[str, dict[str, Any]] = {}
        self.version = ""

    def replace(self, items: Iterable[dict[str, Any]], version: str) -> None:
        """Takes over a complete list. Raises KeyError, TypeError or AttributeError if it is none of EndpointSlices."""
        self._slices = {item["metadata"]["name"]: item for item in items}
        self.version = version

    def apply(self, change: dict[str, Any]) -> bool:
        """Takes over one event of a watch; returns False if the list must be read anew, because the API server does not
        know what has changed since `version`. Raises as `replace` does."""
        kind, item = change["type"], change["object"]
        if kind == "ERROR":
            return False
        self.version = item["metadata"]["resourceVersion"]
        if kind in ("ADDED", "MODIFIED"):
            self._slices[item["metadata"]["name"]] = item
        elif kind == "DELETED":
            self._slices.pop(item["metadata"]["name"], None)
        return True

    def endpoints(self) -> tuple[ReadyEndpoint, ...]:
        """Returns each endpoint that is ready, in the order of their URLs. One that terminates is not ready."""
        labels: dict[str, set[str]] = {}
        for each in self._slices.values():
            role = (each["metadata"].get("labels") or {}).get(ROLE_LABEL)
            for url in self._urls(each):
                labels.setdefault(url, set()).update([role] if role else [])
        return tuple(_endpoint(url, labels[url]) for url in sorted(labels))

    def _urls(self, each: dict[str, Any]) -> Iterable[str]:
        port = self._port or _port(each.get("ports") or [])
        if port is None or each.get("addressType") not in ("IPv4", "IPv6"):
            return
        for endpoint in each.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") is False or not endpoint.get("addresses"):
                continue
            address = endpoint["addresses"][0]
            yield f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _port(ports: list[dict[str, Any]]) -> int | None:
    """Returns the port named `http`, or the first one."""
    numbers = {each.get("name") or "": each["port"] for each in ports if each.get("port")}
    return numbers.get("http", next(iter(numbers.values()), None))


def _endpoint(url: str, labels: set[str]) -> ReadyEndpoint:
    if unknown := sorted(labels - _ROLES.keys()):
        return ReadyEndpoint(url, fault=f"{ROLE_LABEL}={unknown[0]} is none of {', '.join(_ROLES)}")
    roles = {_ROLES[label] for label in labels}
    if len(roles) > 1:
        return ReadyEndpoint(url, fault=f"its Services say {' and '.join(sorted(labels))} of it: leave one of them out")
    return ReadyEndpoint(url, *roles)
