"""What this gateway tells the other gateways and hears from them: limits that they share, promises, prompts, jobs."""

from hmas.contracts.gateway import GatewayEffect, PublishUse
from hmas.contracts.use import UseReport
from hmas.gateway.agent.state import GatewayState


def tell(state: GatewayState) -> list[GatewayEffect]:
    """Returns the report that is due, if there is anything to report."""
    now_s, config = state.now_s, state.config
    uses = state.tenants.exchange(now_s)
    held = state.router.chooser.report(now_s)
    stages = state.linker.report(now_s)
    if uses is None and not state.promises.changed and not held and not stages:
        return []
    promised, redeemed = state.promises.report(now_s)
    report = UseReport(
        gateway=config.gateway,
        incarnation=config.incarnation,
        uses=uses or (),
        promised=promised,
        redeemed=redeemed,
        held=held,
        stages=stages,
    )
    return [PublishUse(report)]


def on_report(state: GatewayState, report: UseReport) -> None:
    state.tenants.hear(state.now_s, report)
    if report.gateway != state.config.gateway:
        state.promises.hear(state.now_s, report.promised, report.redeemed)
        state.router.chooser.hear(state.now_s, report.gateway, report.held)
        state.linker.hear(state.now_s, report.stages)
