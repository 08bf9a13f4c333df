"""The proof of the mesh's secret: who passes, and that nothing seen on the wire helps anybody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.wire.handshake import Handshake, HelloRefused, MeshSecret, Side
from hmas.wire.v1 import execution_pb2 as pb

SECRET, OTHER = MeshSecret(b"s" * 32), MeshSecret(b"o" * 32)
GATEWAY = pb.Hello(sender="g", incarnation="1", wire_version=2)
WORKER = pb.Hello(sender="w", incarnation="2", wire_version=2)


def pair(gateway: MeshSecret | None, worker: MeshSecret | None) -> tuple[Handshake, Handshake]:
    return Handshake(Side.GATEWAY, GATEWAY, gateway), Handshake(Side.WORKER, WORKER, worker)


def test_both_prove_the_secret_and_neither_tells_it() -> None:
    near, far = pair(SECRET, SECRET)
    answer = far.answer(near.hello())
    proof = near.finish(answer)
    assert proof is not None
    far.check(proof)
    assert answer.proof != proof.proof
    assert b"s" * 8 not in near.hello().SerializeToString() + answer.SerializeToString() + proof.SerializeToString()


def test_without_a_secret_on_either_side_nothing_is_asked() -> None:
    near, far = pair(None, None)
    assert near.finish(far.answer(near.hello())) is None


@pytest.mark.parametrize(("gateway", "worker"), [(SECRET, None), (None, SECRET)])
def test_a_secret_on_one_side_alone_is_told_to_both(gateway: MeshSecret | None, worker: MeshSecret | None) -> None:
    near, far = pair(gateway, worker)
    with pytest.raises(HelloRefused, match="HMAS_MESH_SECRET_FILE"):
        far.answer(near.hello())
    with pytest.raises(HelloRefused, match="HMAS_MESH_SECRET_FILE"):
        near.finish(far.hello())


def test_another_secret_is_refused_by_both() -> None:
    near, far = pair(SECRET, OTHER)
    answer = far.answer(near.hello())
    with pytest.raises(HelloRefused, match="worker does not know"):
        near.finish(answer)
    near, far = pair(OTHER, SECRET)
    near._hellos[Side.WORKER] = far.answer(near.hello())
    with pytest.raises(HelloRefused, match="gateway does not know"):
        far.check(pb.Hello(proof=near._proof(Side.GATEWAY)))


def test_a_proof_is_good_for_one_connection_and_one_side() -> None:
    near, far = pair(SECRET, SECRET)
    answer = far.answer(near.hello())
    proof = near.finish(answer)
    assert proof is not None
    for stolen in (answer.proof, proof.proof, b"", proof.proof[:-1]):
        again = Handshake(Side.WORKER, WORKER, SECRET)
        again.answer(near.hello())  # the same hello once more, with a nonce that was seen
        with pytest.raises(HelloRefused):
            again.check(pb.Hello(proof=stolen))
    with pytest.raises(HelloRefused):
        far.check(pb.Hello(proof=answer.proof))  # what the worker said, sent back to it
    mirror = pb.Hello()
    mirror.CopyFrom(near.hello())
    with pytest.raises(HelloRefused):
        near.finish(mirror)


@pytest.mark.parametrize("changed", ["sender", "incarnation", "wire_version", "nonce"])
def test_a_hello_that_was_changed_on_its_way_breaks_the_proof(changed: str) -> None:
    near, far = pair(SECRET, SECRET)
    hello = pb.Hello()
    hello.CopyFrom(near.hello())
    setattr(hello, changed, {"wire_version": 3, "nonce": b"n" * 16}.get(changed, "x"))
    with pytest.raises(HelloRefused):
        near.finish(far.answer(hello))


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_no_two_lists_of_parts_have_one_proof(one: list[bytes], other: list[bytes]) -> None:
    assert (SECRET.proof("p", *one) == SECRET.proof("p", *other)) == (one == other)


def test_a_short_secret_is_refused_with_advice_and_the_token_tells_nothing() -> None:
    with pytest.raises(ValueError, match="openssl rand"):
        MeshSecret(b"short")
    assert SECRET.token == MeshSecret(b"s" * 32).token != OTHER.token
    assert "73737373" not in SECRET.token
