"""Structured logs: one line per decision or change of state, never one per token; event names are constant."""

import logging
import sys

import structlog


def configure_logs(service: str, instance: str, level: str, fmt: str) -> None:
    """Makes structlog and the standard library's logging write to stderr.

    `level` is a name such as "info"; `fmt` is "json" or "console". Each line carries `service` and `instance`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Structlog's default tracebacks print local variables, but prompts and API keys must not get into a log.
    plain_traceback = structlog.dev.plain_traceback
    renderer: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if fmt == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain_traceback)]
    )
    structlog.configure(
        processors=shared + renderer,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service, instance=instance)
    # Libraries log through the standard library; their lines below warning are of no use to an operator.
    logging.basicConfig(
        level=max(number, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # the bus reports connection changes itself
