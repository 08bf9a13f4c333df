"""The ways in which a request ends or is refused, and the table that maps them to HTTP."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. A refusal is such a value, never an exception."""

    FINISHED = "finished"
    CANCELLED = "cancelled"  # the client went away
    INVALID_REQUEST = "invalid_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_PATH = "unknown_path"  # the model's engines do not serve this part of the API
    BODY_TOO_LARGE = "body_too_large"
    CLIENT_TOO_SLOW = "client_too_slow"
    NEVER_FITS = "never_fits"  # prompt + output can never fit the KV cache or the context window
    TENANT_REQUEST_RATE = "tenant_request_rate"
    TENANT_TOKEN_RATE = "tenant_token_rate"
    TENANT_IN_FLIGHT = "tenant_in_flight"
    TENANT_QUEUE_FULL = "tenant_queue_full"
    POOL_QUEUE_FULL = "pool_queue_full"
    SLO_UNREACHABLE = "slo_unreachable"  # tenant asked to be refused rather than relegated
    NO_ENGINE = "no_engine"
    ENGINE_ERROR = "engine_error"  # the engine failed or answered 5xx
    ENGINE_REFUSED = "engine_refused"  # the engine answered 4xx; its error object is passed on
    DRAINING = "draining"
    TIMED_OUT = "timed_out"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class OutcomeMapping:
    """The HTTP status and the OpenAI error `type` of an outcome, and whether a retry can help."""

    http_status: int
    error_type: str
    retry_helps: bool


OUTCOME_TABLE: dict[Outcome, OutcomeMapping] = {
    Outcome.FINISHED: OutcomeMapping(200, "", False),
    Outcome.CANCELLED: OutcomeMapping(499, "client_closed_request", False),
    Outcome.INVALID_REQUEST: OutcomeMapping(400, "invalid_request_error", False),
    Outcome.UNAUTHENTICATED: OutcomeMapping(401, "authentication_error", False),
    Outcome.FORBIDDEN: OutcomeMapping(403, "permission_error", False),
    Outcome.UNKNOWN_MODEL: OutcomeMapping(404, "invalid_request_error", False),
    Outcome.UNKNOWN_PATH: OutcomeMapping(404, "invalid_request_error", False),
    Outcome.BODY_TOO_LARGE: OutcomeMapping(413, "invalid_request_error", False),
    Outcome.CLIENT_TOO_SLOW: OutcomeMapping(408, "invalid_request_error", False),
    Outcome.NEVER_FITS: OutcomeMapping(400, "invalid_request_error", False),
    Outcome.TENANT_REQUEST_RATE: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.TENANT_TOKEN_RATE: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.TENANT_IN_FLIGHT: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.TENANT_QUEUE_FULL: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.POOL_QUEUE_FULL: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.SLO_UNREACHABLE: OutcomeMapping(429, "rate_limit_error", True),
    Outcome.NO_ENGINE: OutcomeMapping(503, "service_unavailable_error", True),
    Outcome.ENGINE_ERROR: OutcomeMapping(502, "api_error", True),
    Outcome.ENGINE_REFUSED: OutcomeMapping(400, "invalid_request_error", False),
    Outcome.DRAINING: OutcomeMapping(503, "service_unavailable_error", True),
    Outcome.TIMED_OUT: OutcomeMapping(504, "timeout_error", True),
    Outcome.INTERNAL: OutcomeMapping(500, "api_error", True),
}
