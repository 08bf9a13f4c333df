"""How gateway and worker prove to each other that they know the mesh's secret, without telling it.

The gateway's hello brings a nonce; the worker's hello brings another one and the worker's proof; the gateway's second
hello brings the gateway's proof. A proof is an HMAC over both hellos, and over who made it, so that none can be sent
back to its maker or used on another connection. Neither side believes a message before it has seen the other's proof.
An attacker who can change what travels can still take over a connection after its proofs: between hosts, TLS prevents
that.
"""

import hmac
import secrets
from enum import StrEnum

from hmas.wire.v1 import execution_pb2 as pb

NONCE_BYTES = 16
MIN_SECRET_BYTES = 24
ADVICE = "set HMAS_MESH_SECRET_FILE of every service to the same secret"


class Side(StrEnum):
    GATEWAY = "gateway"
    WORKER = "worker"


class HelloRefused(Exception):
    """The peer's hello does not prove that it knows the secret of this mesh; the message says what to do."""


class MeshSecret:
    """The secret that the services of one mesh share. Raises ValueError if `key` is shorter than `MIN_SECRET_BYTES`."""

    def __init__(self, key: bytes) -> None:
        if len(key) < MIN_SECRET_BYTES:
            raise ValueError(
                f"the mesh's secret has {len(key)} bytes and needs at least {MIN_SECRET_BYTES}: make one with "
                "`openssl rand -hex 32`"
            )
        self._key = key

    def proof(self, purpose: str, *parts: bytes) -> bytes:
        """Returns an HMAC-SHA256 over `purpose` and `parts`, each with its length, so that no two lists of parts are
        alike."""
        message = b"".join(len(part).to_bytes(4) + part for part in (purpose.encode(), *parts))
        return hmac.digest(self._key, message, "sha256")

    @property
    def token(self) -> str:
        """The token that calls of cognition carry, as hexadecimal digits. It does not tell the secret."""
        return self.proof("hmas rpc 1").hex()


class Handshake:
    """One side of a new connection. `identity` is its hello without nonce and proof; `secret` None proves and asks for
    nothing, and refuses a peer that has a secret, because that peer would not go on."""

    def __init__(self, side: Side, identity: pb.Hello, secret: MeshSecret | None) -> None:
        self._side, self._secret = side, secret
        self._hellos = {side: pb.Hello()}
        self._hellos[side].CopyFrom(identity)
        if secret is not None:
            self._hellos[side].nonce = secrets.token_bytes(NONCE_BYTES)

    def hello(self) -> pb.Hello:
        """Returns the gateway's first hello."""
        return self._hellos[self._side]

    def answer(self, theirs: pb.Hello) -> pb.Hello:
        """Returns the worker's hello to a gateway's first one. Raises HelloRefused if only one of both has a secret."""
        self._hellos[Side.GATEWAY] = theirs
        self._alike(theirs)
        return self._proved()

    def finish(self, theirs: pb.Hello) -> pb.Hello | None:
        """Checks the worker's hello and returns the gateway's second one, None without a secret. Raises HelloRefused if
        the worker's proof is missing or wrong."""
        self._hellos[Side.WORKER] = theirs
        self._alike(theirs)
        if self._secret is None:
            return None
        self.check(theirs)
        return pb.Hello(proof=self._proof(self._side))

    def check(self, theirs: pb.Hello) -> None:
        """Checks the peer's proof. Raises HelloRefused."""
        peer = Side.WORKER if self._side is Side.GATEWAY else Side.GATEWAY
        if self._secret is not None and not hmac.compare_digest(theirs.proof, self._proof(peer)):
            raise HelloRefused(f"the {peer} does not know the mesh's secret: {ADVICE}")

    def _alike(self, theirs: pb.Hello) -> None:
        if self._secret is None and theirs.nonce:
            raise HelloRefused(f"the peer asks for the mesh's secret, and this process has none: {ADVICE}")
        if self._secret is not None and len(theirs.nonce) != NONCE_BYTES:
            raise HelloRefused(f"the peer has no secret: {ADVICE}")

    def _proved(self) -> pb.Hello:
        hello = pb.Hello()
        hello.CopyFrom(self._hellos[self._side])
        if self._secret is not None:
            hello.proof = self._proof(self._side)
        return hello

    def _proof(self, side: Side) -> bytes:
        assert self._secret is not None
        parts = []
        for hello in (self._hellos[Side.GATEWAY], self._hellos[Side.WORKER]):
            parts += [hello.sender.encode(), hello.incarnation.encode(), b"%d" % hello.wire_version, hello.nonce]
        return self._secret.proof(f"hmas stream 1, {side}", *parts)
