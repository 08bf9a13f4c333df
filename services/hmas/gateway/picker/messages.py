"""What the endpoint picker says to Envoy."""

from collections.abc import Iterable, Iterator

from google.protobuf.struct_pb2 import Struct

from hmas.gateway.errors import ApiError, ErrorShape, Headers
from hmas.wire.v1 import ext_proc_pb2 as pb

DESTINATION = "x-gateway-destination-endpoint"
METADATA = "envoy.lb"
SUBSET, SUBSET_METADATA = "x-gateway-destination-endpoint-subset", "envoy.lb.subset_hint"
CHUNK_BYTES = 62_000  # some gateways take 64 KiB in one message at most
_OVERWRITE = pb.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def refusal(error: ApiError, shape: ErrorShape, own_headers: Headers) -> pb.ProcessingResponse:
    """Returns the answer to the client in place of an engine's."""
    headers = [*((name, value) for name, value in error.headers() if name != b"connection"), *own_headers]
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=pb.HttpStatus(code=error.status),
            headers=pb.HeaderMutation(set_headers=_options(headers)),
            body=error.body(shape),
            details=error.reason,
        )
    )


def wanted(endpoint: str, headers: Headers, remove: Iterable[str]) -> tuple[pb.HeaderMutation, Struct]:
    """Returns what names the engine at `endpoint` (ip:port) to Envoy: headers of the request, and metadata."""
    metadata = Struct()
    metadata.get_or_create_struct(METADATA)[DESTINATION] = endpoint
    named = [(DESTINATION.encode(), endpoint.encode()), *headers]
    return pb.HeaderMutation(set_headers=_options(named), remove_headers=remove), metadata


def go_on() -> pb.ProcessingResponse:
    """Returns what lets Envoy go on to the request's body. It asks Envoy, where its configuration allows that, to send
    nothing of an answer's body here."""
    modes = pb.ProcessingMode(
        response_header_mode=pb.ProcessingMode.SEND,
        request_body_mode=pb.ProcessingMode.BUFFERED,
        response_body_mode=pb.ProcessingMode.NONE,
        response_trailer_mode=pb.ProcessingMode.SEND,  # so that the stream lasts as long as the answer
    )
    return pb.ProcessingResponse(request_headers=pb.HeadersResponse(), mode_override=modes)


def buffered(body: bytes, mutation: pb.HeaderMutation, told: Struct) -> pb.ProcessingResponse:
    """Returns what sends a request with `body` on, whose body came as a whole."""
    common = pb.CommonResponse(header_mutation=mutation, body_mutation=pb.BodyMutation(body=body))
    return pb.ProcessingResponse(request_body=pb.BodyResponse(response=common), dynamic_metadata=told)


def streamed(
    body: bytes, mutation: pb.HeaderMutation, told: Struct, *, trailers: bool
) -> Iterator[pb.ProcessingResponse]:
    """Yields what sends a request with `body` on, whose body came in parts, and perhaps with `trailers`."""
    headers = pb.HeadersResponse(response=pb.CommonResponse(header_mutation=mutation))
    yield pb.ProcessingResponse(request_headers=headers, dynamic_metadata=told)
    for begin in range(0, len(body), CHUNK_BYTES):
        last = begin + CHUNK_BYTES >= len(body) and not trailers
        part = pb.StreamedBodyResponse(body=body[begin : begin + CHUNK_BYTES], end_of_stream=last)
        yield pb.ProcessingResponse(request_body=_body(part))
    if trailers:
        yield pb.ProcessingResponse(request_trailers=pb.TrailersResponse())


def answer_headers(headers: Headers) -> pb.ProcessingResponse:
    """Returns what lets an engine's answer pass, with further headers."""
    mutation = pb.HeaderMutation(set_headers=_options(headers))
    return pb.ProcessingResponse(
        response_headers=pb.HeadersResponse(response=pb.CommonResponse(header_mutation=mutation))
    )


def answer_body(body: pb.HttpBody, mode: int) -> pb.ProcessingResponse:
    """Returns what lets a part of an answer pass, where the gateway sends them here nevertheless. `mode`: how."""
    if mode != pb.ProcessingMode.FULL_DUPLEX_STREAMED:
        return pb.ProcessingResponse(response_body=pb.BodyResponse())
    streamed = pb.StreamedBodyResponse(body=body.body, end_of_stream=body.end_of_stream)
    return pb.ProcessingResponse(response_body=_body(streamed))


def headers_of(message: pb.HttpHeaders) -> Headers:
    return [(each.key.encode(), each.raw_value or each.value.encode()) for each in message.headers.headers]


def status_of(value: bytes) -> int:
    """Returns the status of an answer, 502 for what is none."""
    return int(value) if len(value) == 3 and value.isdigit() and b"100" <= value < b"600" else 502


def subset_of(metadata: pb.Metadata) -> frozenset[str] | None:
    """Returns the endpoints that the gateway allows for a request, None if it allows all."""
    if SUBSET_METADATA not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[SUBSET_METADATA].fields
    if SUBSET not in fields:
        return None
    value = fields[SUBSET]
    if value.HasField("string_value"):
        return frozenset(part.strip() for part in value.string_value.split(","))
    return frozenset(each.string_value for each in value.list_value.values)


def _body(streamed: pb.StreamedBodyResponse) -> pb.BodyResponse:
    mutation = pb.BodyMutation(streamed_response=streamed)
    return pb.BodyResponse(response=pb.CommonResponse(body_mutation=mutation))


def _options(headers: Headers) -> list[pb.HeaderValueOption]:
    return [
        pb.HeaderValueOption(header=pb.HeaderValue(key=name.decode(), raw_value=value), append_action=_OVERWRITE)
        for name, value in headers
    ]
