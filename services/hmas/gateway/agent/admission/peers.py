"""The other gateways: which there are, and what their tenants use."""

from collections.abc import Collection
from dataclasses import dataclass, field

from hmas.contracts.use import TenantUse, UseReport
from hmas.gateway.agent.config import GatewayConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersUse:
    """The use of one tenant at all other gateways together."""

    demand: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    most_in_flight: int = 0
    most_waiting: int = 0


NOBODY = OthersUse()


@dataclass(slots=True, kw_only=True)
class _Peer:
    """`last`: what was last told of each tenant. `current`: when that was, of the tenants that it uses now."""

    incarnation: str
    heard_s: float
    last: dict[str, TenantUse] = field(default_factory=dict)
    current: dict[str, float] = field(default_factory=dict)


class Peers:
    """The gateways that send reports, with what each of them used last.

    A gateway hears its own reports as well. While they come back, a gateway that is silent for `lost_s` is gone. When
    they do not come back, this gateway itself is cut off, and it goes on counting the others that it knew.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config, self._neighbours = config, config.neighbours
        self._peers: dict[str, _Peer] = {}
        self._echo_s = -1e9  # when the last report of its own came back
        self._apart_s = -1e9  # when it was last found to be apart

    def __len__(self) -> int:
        return len(self._peers)

    def hear(self, now_s: float, report: UseReport) -> list[tuple[TenantUse, TenantUse | None]]:
        """Takes a report. Returns each use in it with what the same start of the gateway had told of the tenant before,
        None if nothing."""
        if report.gateway == self._config.gateway:
            if report.incarnation == self._config.incarnation:
                self._echo_s = now_s
            return []
        peer = self._peers.get(report.gateway)
        if peer is None and len(self._peers) >= self._neighbours.max_peers:
            return []
        if peer is None or peer.incarnation != report.incarnation:
            peer = self._peers[report.gateway] = _Peer(incarnation=report.incarnation, heard_s=now_s)
        changes = [(use, peer.last.get(use.tenant)) for use in report.uses]
        peer.heard_s = now_s
        peer.last.update((use.tenant, use) for use in report.uses)
        self._renew(now_s, peer, report)
        return changes

    def _renew(self, now_s: float, peer: _Peer, report: UseReport) -> None:
        """Notes what the peer uses now. A full report may leave tenants out, whose turn comes within `lost_s`."""
        is_full, since_s = len(report.uses) >= self._neighbours.max_reported, now_s - self._neighbours.lost_s
        kept = {tenant: at_s for tenant, at_s in peer.current.items() if at_s >= since_s} if is_full else {}
        peer.current = kept | dict.fromkeys((use.tenant for use in report.uses), now_s)

    def check(self, now_s: float, tenants: Collection[str]) -> bool:
        """Forgets those that are gone, and what was told of tenants other than `tenants`. Returns whether this gateway
        hears the others."""
        if now_s - self._echo_s > self._neighbours.lost_s:
            self._apart_s = now_s
            return False
        if now_s - self._apart_s > self._neighbours.lost_s:  # by now every live gateway was heard again
            lost_s = now_s - self._neighbours.lost_s
            self._peers = {name: peer for name, peer in self._peers.items() if peer.heard_s >= lost_s}
        for peer in self._peers.values():
            if len(peer.last) > len(tenants):
                peer.last = {tenant: use for tenant, use in peer.last.items() if tenant in tenants}
        return True

    def totals(self) -> dict[str, OthersUse]:
        """Returns by tenant what the other gateways use."""
        found: dict[str, OthersUse] = {}
        for peer in self._peers.values():
            for use in filter(None, map(peer.last.get, peer.current)):
                total = found.get(use.tenant, NOBODY)
                found[use.tenant] = OthersUse(
                    demand=total.demand + use.demand,
                    in_flight=total.in_flight + use.in_flight,
                    waiting=total.waiting + use.waiting,
                    most_in_flight=total.most_in_flight + max(use.in_flight, use.most_in_flight),
                    most_waiting=total.most_waiting + max(use.waiting, use.most_waiting),
                )
        return found
