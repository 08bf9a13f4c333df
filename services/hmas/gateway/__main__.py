"""Builds the gateway from its settings and runs it: `python -m hmas.gateway`."""

import asyncio
import logging
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import structlog
import uvicorn
from fastapi import FastAPI
from google.protobuf.message import DecodeError

from hmas.contracts.cadences import LIVE
from hmas.contracts.control import ControlTuple, TopologyDecision
from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.gateway import (
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    TenantsChanged,
)
from hmas.contracts.pool_plan import PlanDecision
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.contracts.views import VShort
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.cognition import CognitionShell
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.engines.engines import EngineDirectory
from hmas.gateway.failures import RequestFailures
from hmas.gateway.http.api import build_api, ops_routes
from hmas.gateway.http.client_protocol import ClientProtocol
from hmas.gateway.http.server import GatewayServer, for_web_pages
from hmas.gateway.picker.server import PickerServer
from hmas.gateway.reception import Reception
from hmas.gateway.records import GatewayRecords
from hmas.gateway.settings import GatewaySettings
from hmas.gateway.shell import GatewayShell
from hmas.gateway.sleepers import SleepingEngines
from hmas.gateway.streams import WorkerStreams
from hmas.gateway.tenants.file import TenantFileError
from hmas.gateway.tenants.store import TenantStore
from hmas.gateway.usage.book import UsageBook
from hmas.gateway.usage.files import UsageFiles
from hmas.laws.recording import AgentOrigin
from hmas.runtime import ids
from hmas.runtime.bus import Bus
from hmas.runtime.certificates import Certificate
from hmas.runtime.connections import guarded
from hmas.runtime.extras import CannotStart
from hmas.runtime.host import AgentHost
from hmas.runtime.lifecycle import StopSignal, run_service, run_until
from hmas.runtime.ops import HttpServer, ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.security import security_of
from hmas.runtime.tracing import open_tracing
from hmas.wire import subjects
from hmas.wire.codec import encode
from hmas.wire.v1 import observe_pb2

log = structlog.get_logger()
JOBS_FRESH_S = 1.0
SWITCH_S = 0.001  # after which the thread that parses a large body gives way to the event loop; Python's is 5 ms


class GatewayService:
    """One gateway process with its HTTP server, its streams to the workers and its connection to NATS.

    Raises TenantFileError if the tenants file is invalid, and OSError if it or an engine's API key cannot be read.
    """

    def __init__(self, gateway: str, settings: GatewaySettings) -> None:
        self._settings = settings
        self._tenants = TenantStore(settings.tenants_file)
        self._directory = ModelDirectory(settings.agent_config(gateway).max_pools)
        self._decisions = DecisionLog(time.time)
        self._sleepers = SleepingEngines()
        self._bus = Bus(settings, gateway)
        self._tracing = open_tracing("gateway", gateway, settings)
        self._usage = UsageBook()
        self._usage_files = None
        if settings.usage_dir is not None:
            self._usage_files = UsageFiles(settings.usage_dir, gateway, self._usage)
        self._records = GatewayRecords(
            gateway, self._directory, kept=settings.journal, tracing=self._tracing, usage=self._usage
        )
        self._shell = GatewayShell(
            self._directory,
            EngineDirectory(settings.allowed_endpoints()),
            self._records.witness,
            lambda message: self._bus.publish(subjects.subject_of(message), message),
            max_buffered_bytes=settings.max_buffered_bytes,
        )
        incarnation = ids.incarnation()
        config = replace(settings.agent_config(gateway), incarnation=incarnation)
        self._recorder = Recorder(AgentOrigin(Role.GATEWAY, gateway, config), settings)
        agent = GatewayAgent(config)
        self._host: AgentHost[GatewayEvent, GatewayEffect] = AgentHost(
            agent,
            self._shell.execute,
            failed=RequestFailures(self._shell).on_failure,
            observe=self._recorder.observe,
        )
        self._streams = WorkerStreams(
            gateway, incarnation, self._shell, settings.stream_config(), security=security_of(settings)
        )
        self._cognition = CognitionShell(settings.cognition_config(), self._shell.on_annotated)
        self._shell.connect(self._host.post, self._streams, self._cognition.post, agent.turn)
        self._jobs_report, self._jobs_stale_s = encode(self._records.jobs.report()), 0.0
        self._subscribe()
        self._certificate = settings.api_certificate()
        rest = build_api(self._directory, self._tenants, self._ready, self._decisions)
        self._http = HttpServer(self._http_config(rest))
        self._picker = self._make_picker()
        pages = ops_routes(rest, self._directory, self._decisions)
        self._ops = ops_server(settings.ops_host, settings.ops_port, self._ready, pages, token=settings.ops_token())

    def _subscribe(self) -> None:
        receive: dict[type, Callable[[Any], None]] = {
            WorkerHeartbeat: self._on_heartbeat,
            VShort: self._shell.on_view,
            TopologyDecision: self._decisions.on_topology,
            PlanDecision: self._decisions.on_plan,
            ControlTuple: self._decisions.on_tuple,
        }
        self._bus.follow(Role.GATEWAY, self._host.post, receive=receive)
        self._bus.answer(subjects.QUERY_WHY, self._answer_why)
        self._bus.answer(subjects.QUERY_JOBS, self._answer_jobs)
        self._bus.answer(subjects.QUERY_EFFECTS, self._recorder.answer)

    def _on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._shell.on_heartbeat(heartbeat)
        self._decisions.on_heartbeat(heartbeat)
        self._sleepers.on_heartbeat(heartbeat)

    def _http_config(self, rest: FastAPI) -> uvicorn.Config:
        settings = self._settings
        server = GatewayServer(settings.server_config(), self._shell, self._tenants, self._directory, rest)
        return uvicorn.Config(
            for_web_pages(server, settings.allowed_origins()),
            host=settings.host,
            port=settings.port,
            ssl_context_factory=_api_context(self._certificate),
            http=guarded(settings.connection_bounds(), ClientProtocol),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=2,
        )

    def _make_picker(self) -> PickerServer | None:
        settings = self._settings
        if settings.picker_port is None:
            return None
        config = settings.server_config()
        reception = Reception(
            self._shell,
            self._tenants,
            self._directory,
            replay_field=config.replay_field,
            follow_prompts=config.follow_prompts,
        )
        certificate = None if self._certificate is None else self._certificate.files
        return PickerServer(
            self._shell,
            reception,
            self._ready,
            bounds=config.body,
            most=settings.max_connections,
            certificate=certificate,
        )

    def _ready(self) -> bool:
        """Returns whether this gateway knows at least one model and is connected to NATS or to a worker.

        Before it knows a model it would hold or refuse requests that another gateway could serve. It stays ready when
        all engines die, because a 503 that says when to retry is better for a client than no address at all.
        """
        return bool(self._directory) and (self._bus.connected or self._shell.workers_connected > 0)

    async def _answer_why(self, data: bytes) -> bytes | None:
        """Returns the reply to a `WhyRequest`. None leaves the answer to the gateway that knows the request."""
        try:
            query = observe_pb2.WhyRequest.FromString(data)
        except DecodeError:
            return None
        if query.job:
            stages = self._records.journal.stages(query.job)
            reply = observe_pb2.WhyReply(found=bool(stages), timeline_json=orjson.dumps(stages).decode())
            return reply.SerializeToString() if stages else None
        told = self._records.journal.timeline(query.request_id, self._decisions.group_of)
        exchange = self._records.journal.find(query.request_id)
        if told is None or exchange is None:
            return None
        timeline = orjson.loads(told)
        if awaited := self._sleepers.awaited_by(exchange):
            timeline["waits_for"] = awaited
        timeline["in_force_now"] = self._decisions.in_force(timeline["pool"])
        return observe_pb2.WhyReply(found=True, timeline_json=orjson.dumps(timeline).decode()).SerializeToString()

    async def _answer_jobs(self, data: bytes) -> bytes:
        """Returns a `JobsReply`; all who ask within `JOBS_FRESH_S` get the same one."""
        now_s = time.monotonic()
        if now_s >= self._jobs_stale_s:
            self._jobs_stale_s = now_s + JOBS_FRESH_S
            self._jobs_report = await asyncio.to_thread(encode, self._records.jobs.report())
        return self._jobs_report

    async def run(self, stop: StopSignal) -> None:
        """Serves until `stop` is set, then drains. Raises OSError if the port is taken."""
        self._tenants_changed()
        ops_port = await self._ops.start()
        port = await self._http.start()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the gateway itself logs what an operator needs
        if self._picker is not None and self._settings.picker_port is not None:
            picker_port = await self._picker.start(self._settings.picker_host, self._settings.picker_port)
            log.info("picker_listening", host=self._settings.picker_host, port=picker_port)
        log.info("listening", host=self._settings.host, port=port, ops_port=ops_port)
        tenants = self._tenants.run(self._tenants_changed, self._tenants_checked)
        try:
            tasks = [self._bus.run(), self._tick(), self._report_progress(), tenants]
            if self._usage_files is not None:
                tasks.append(self._usage_files.run())
            if self._picker is not None:
                tasks.append(self._picker.watch())
            if self._certificate is not None:
                tasks.append(self._certificate.watch())
            await run_until(stop, *tasks, drain=self._drain)
        finally:
            if self._usage_files is not None:
                await self._usage_files.write()
            await self._ops.stop()
            if self._picker is not None:
                await self._picker.stop()
            await self._cognition.close()
            await self._shell.close()
            await self._streams.close()
            await self._bus.close()
            self._recorder.close()
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)

    async def _drain(self) -> None:
        """Refuses new requests and waits up to `drain_grace_s` seconds for the accepted ones; those still running then
        end with an error. Idle connections are closed, so that clients connect to another gateway next time."""
        self._host.post(GatewayDraining())
        self._http.retire()
        if self._picker is not None:
            await self._picker.retire()
        deadline_s = asyncio.get_running_loop().time() + self._settings.drain_grace_s
        log.info("draining", requests=self._shell.live, grace_s=self._settings.drain_grace_s)
        while self._shell.live and asyncio.get_running_loop().time() < deadline_s:  # noqa: ASYNC110 (not worth an event)
            await asyncio.sleep(LIVE.gateway_tick_s)
        self._host.post(GatewayDrainExpired())
        await self._http.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LIVE.gateway_tick_s)
            self._host.post(GatewayTicked())
            self._cognition.post(TimerTicked())

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(LIVE.progress_s)
            self._shell.relay.report_progress()
            self._records.jobs.count_over()

    def _tenants_checked(self) -> None:
        if self._settings.end_revoked:
            self._shell.end_keys(self._tenants.holds)

    def _tenants_changed(self) -> None:
        self._host.post(TenantsChanged(self._tenants.limits(), self._tenants.classes()))


async def serve(settings: GatewaySettings, instance: str, stop: StopSignal) -> None:
    """Runs the gateway called `instance` until `stop` is set, then drains it.

    Raises CannotStart if the tenants file is invalid, and OSError if it cannot be read or the port is taken.
    """
    sys.setswitchinterval(SWITCH_S)
    try:
        service = GatewayService(instance, settings)
    except TenantFileError as error:
        raise CannotStart(str(error)) from error
    await service.run(stop)


def _api_context(certificate: Certificate | None) -> Callable[..., ssl.SSLContext] | None:
    """Returns what makes the TLS context of the API, for uvicorn; None without TLS."""
    return None if certificate is None else lambda *_: certificate.context(ssl.PROTOCOL_TLS_SERVER)


def main() -> None:
    run_service("gateway", GatewaySettings, serve)


if __name__ == "__main__":
    main()
