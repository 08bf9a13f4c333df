"""Wiring: `python -m hmas.statera`."""

from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.statera.agent import StateraAgent
from hmas.statera.introduction import WorkerIntroduction
from hmas.statera.metrics import StateraMetrics
from hmas.statera.settings import StateraSettings
from hmas.statera.shell import StateraShell


async def serve(settings: StateraSettings, instance: str, stop: StopSignal) -> None:
    """Runs the Statera service until `stop` is set."""
    config = settings.statera_config()
    origin = AgentOrigin(Role.STATERA, instance, config)
    service = StateraShell(origin, settings, StateraAgent(config), StateraMetrics()).service
    introduction = WorkerIntroduction(service.bucket, service.post)
    service.bus.follow(Role.STATERA, service.post, receive={WorkerHeartbeat: introduction.hear})
    await service.run(stop)


def main() -> None:
    run_service("statera", StateraSettings, serve)


if __name__ == "__main__":
    main()
