"""The meta agent, which adapts the topology of every pool slowly and under guards (H-MAS Algorithm 1, lines 8-16)."""

from dataclasses import replace
from typing import assert_never

from hmas.contracts.control import AuditRecord, Pin, TopologyDecision
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    EpochLost,
    LongViewReceived,
    MetaEffect,
    MetaEvent,
    PinChanged,
    PublishAudit,
    PublishTopology,
    RehearsalAnswered,
    Rehearse,
    SelectorAnswered,
    ShortViewReceived,
    TimerTicked,
    TopologyRestored,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.rehearsal import WARM_S, PastLayout, Policy
from hmas.contracts.views import VLong, VShort, view_json
from hmas.laws.epochs import MAX_SEQ, is_outdated
from hmas.laws.layout import described_split
from hmas.laws.rehearsal import pool_facts
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.layouts import choose_layout
from hmas.meta.agent.pool import PIN, Ask, Decider, PoolState, new_pool
from hmas.meta.agent.rehearsing import CpuBudget, OpenRehearsal, PredictedGain, Proposal, candidates, gain_told, winner
from hmas.meta.agent.selectors import llm
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.selectors.table import ASKED, check_selector


class MetaAgent:
    """Decides the topology of every pool. It decides and publishes only while it holds an epoch; until then it only
    follows. It needs a `TimerTicked` at least four times a second.

    Raises ValueError if the configured selector is unknown.
    """

    def __init__(self, config: MetaConfig) -> None:
        for name in config.selectors:
            check_selector(name)
        if len(config.selectors) > 1 and not config.rehearsal.enabled:
            raise ValueError("several selectors need rehearsals, which choose between their proposals")
        self._config = config
        self._budget = CpuBudget(config.rehearsal.cpu_share)
        self._rehearsal: OpenRehearsal | None = None
        self._rehearsals = 0
        self._pools: dict[str, PoolState] = {}
        self._epoch: int | None = None
        self._seq = 0
        self._asks = 0

    def step(self, now_s: float, event: MetaEvent) -> list[MetaEffect]:
        match event:
            case ShortViewReceived(view):
                return self._short(now_s, view)
            case LongViewReceived(view):
                return self._long(now_s, view)
            case SelectorAnswered():
                return self._answered(now_s, event)
            case RehearsalAnswered():
                return self._rehearsed(now_s, event)
            case PinChanged(pin):
                return self._pinned(now_s, pin)
            case HeartbeatReceived(heartbeat):
                self._pool(now_s, heartbeat.pool).meet(now_s, heartbeat)
            case TopologyRestored(decision):
                self._resume(now_s, decision)
            case EpochGranted(epoch):
                self._epoch = epoch
                for pool in self._pools.values():
                    pool.sent = None  # nothing was published in the new epoch yet
            case EpochLost():
                self._epoch, self._rehearsal = None, None
                for pool in self._pools.values():
                    pool.ask = None
            case TimerTicked():
                return self._tick(now_s)
            case _:
                assert_never(event)
        return []

    def decisions(self) -> list[TopologyDecision]:
        """Returns the decision in force in each pool."""
        return [self._decision(pool) for pool in self._pools.values()]

    def _pool(self, now_s: float, name: str) -> PoolState:
        pool = self._pools.get(name)
        if pool is None:
            if len(self._pools) >= self._config.max_pools:
                del self._pools[min(self._pools, key=lambda each: self._pools[each].seen_s)]
            pool = self._pools[name] = new_pool(self._config, name, now_s)
            pool.decide_due_s = now_s + self._config.decide_every_s
        pool.seen_s = now_s
        return pool

    # --- views --------------------------------------------------------------------------------------------------

    def _short(self, now_s: float, view: VShort) -> list[MetaEffect]:
        pool = self._pool(now_s, view.pool)
        if pool.short is not None and is_outdated(view.epoch, pool.short.epoch, pool.view_s, now_s):
            return []
        pool.short, pool.view_s = view, now_s
        if self._epoch is None or pool.pin is not None:
            return []
        effects = self._guard(now_s, pool, view)
        return [*effects, *self._publish_due(now_s, pool)]

    def _guard(self, now_s: float, pool: PoolState, view: VShort) -> list[MetaEffect]:
        if pool.mode is Decider.BYPASSED:
            over = pool.bypass.over(now_s, view)
            return [] if over is None else self._bypass_changed(now_s, pool, Decider.FREE, over)
        if (emergency := pool.bypass.emergency(now_s, view)) is not None:
            return self._bypass_changed(now_s, pool, Decider.BYPASSED, emergency)
        if pool.mode is not Decider.WATCHED:
            return []
        if pool.rollback.over(now_s):
            pool.enter(now_s, Decider.FREE)
            return []
        worse = pool.rollback.check(now_s, view)
        if worse is None or pool.stable is None:
            return []
        pool.enter(now_s, Decider.FREE)
        failed = pool.choice.topology
        pool.banned_until_s[failed] = now_s + self._config.rollback.ban_s
        restored = Choice(pool.stable.topology, pool.stable.hints, f"rolled back from {failed}: {worse}")
        pool.choice, pool.chosen_by, pool.stable = restored, "rollback", None
        pool.switched_s = now_s
        return self._audit(pool, "rolled_back", restored.topology, worse, "rollback", view)

    def _bypass_changed(self, now_s: float, pool: PoolState, mode: Decider, reason: str) -> list[MetaEffect]:
        """Enters the bypass, or leaves it (`mode` FREE), and drops an open question to the selector. After the
        bypass the selector's last accepted choice is in force again, whatever it led to, for at least the dwell."""
        pool.enter(now_s, mode)
        pool.untouched = False
        pool.bypass_reason = reason
        pool.ask = None
        pool.switched_s = now_s
        kind = "bypass_on" if mode is Decider.BYPASSED else "bypass_off"
        return self._audit(pool, kind, pool.in_force().topology, reason, "bypass", pool.short)

    def _long(self, now_s: float, view: VLong) -> list[MetaEffect]:
        pool = self._pool(now_s, view.pool)
        if pool.long is not None and is_outdated(view.epoch, pool.long.epoch, pool.long_s, now_s):
            return []
        pool.long, pool.long_s = view, now_s
        laid_out = self._lay_out(now_s, pool, view)
        return [*laid_out, *self._compare(now_s, pool, view), *self._decide(now_s, pool, view)]

    def _lay_out(self, now_s: float, pool: PoolState, view: VLong) -> list[MetaEffect]:
        """Chooses the pool's layout anew if that is due, unless an operator or the bypass decides it."""
        config = self._config.layout
        pinned = pool.pin is not None and pool.pin.split is not None
        if not config.adaptive or pinned or self._epoch is None or pool.mode is Decider.BYPASSED:
            return []
        if now_s < pool.layout_due_s:
            return []
        steps_s = [engine.step_s for engine in pool.short.engines if engine.up] if pool.short is not None else []
        choice = choose_layout(config, view, pool.split, pool.places(), steps_s)
        if choice is None:
            return []
        pool.layout_due_s = now_s + config.hold_s
        pool.lay_out(now_s, choice.split, choice.order, self._config.rehearsal.window_s + WARM_S)
        pool.untouched = False
        audit = self._audit(pool, "layout", described_split(choice.split), choice.reason, "pace", view)
        return [*audit, *self._publish_due(now_s, pool)]

    def _decide(self, now_s: float, pool: PoolState, view: VLong) -> list[MetaEffect]:
        idle = self._epoch is None or pool.mode in (Decider.PINNED, Decider.BYPASSED) or pool.ask is not None
        if idle or now_s < pool.decide_due_s:
            return []
        pool.decide_due_s = now_s + self._config.decide_every_s
        proposals = tuple(Proposal(s.select(now_s, view, pool.choice), s.name) for s in pool.selectors)
        if ASKED.isdisjoint(self._config.selectors):
            return self._consider(now_s, pool, proposals, view)
        self._asks += 1
        timeout_s = self._config.ask_timeout_s
        pool.ask, pool.proposals = Ask(self._asks, now_s + timeout_s, view), proposals
        return [
            AskSelector(
                ask=self._asks, view=view, current=pool.choice.topology, hints=pool.choice.hints, timeout_s=timeout_s
            )
        ]

    # --- decisions ----------------------------------------------------------------------------------------------

    def _answered(self, now_s: float, answer: SelectorAnswered) -> list[MetaEffect]:
        """Takes the answer to an open question. An answer that is no longer awaited (it is late, the epoch was lost, or
        the pool was pinned since) changes nothing."""
        pool = self._pools.get(answer.pool)
        if self._epoch is None or pool is None or pool.ask is None or pool.ask.number != answer.ask:
            return []
        if now_s >= pool.ask.deadline_s:
            return self._timed_out(now_s, pool, pool.ask)
        view, pool.ask = pool.ask.view, None
        parsed = (
            llm.Rejection(answer.error[: llm.MAX_REASON_CHARS]) if answer.error else llm.parse_answer(answer.answer)
        )
        if isinstance(parsed, llm.Rejection):
            return self._rules_instead(now_s, pool, parsed.reason, view)
        return self._consider(now_s, pool, (Proposal(parsed, llm.NAME), *pool.proposals), view)

    def _timed_out(self, now_s: float, pool: PoolState, ask: Ask) -> list[MetaEffect]:
        pool.ask = None
        return self._rules_instead(now_s, pool, f"no answer in {self._config.ask_timeout_s:g} s", ask.view)

    def _rules_instead(self, now_s: float, pool: PoolState, reason: str, view: VLong) -> list[MetaEffect]:
        rejected = self._audit(pool, "rejected", llm.NOTHING, reason, llm.NAME, view)
        rules = Proposal(pool.rules.select(now_s, view, pool.choice), pool.rules.name)
        return [*rejected, *self._consider(now_s, pool, pool.proposals or (rules,), view)]

    def _consider(
        self, now_s: float, pool: PoolState, proposals: tuple[Proposal, ...], view: VLong
    ) -> list[MetaEffect]:
        """Applies the first proposal at once, or rehearses all that differ from what is in force."""
        config, first = self._config.rehearsal, proposals[0]
        if not config.enabled:
            return self._propose(now_s, pool, first.choice, first.by, view)
        found, policies = candidates(proposals, pool.choice, pool.split, config.max_candidates)
        found = {key: proposal for key, proposal in found.items() if not pool.banned(now_s, key[0])}
        policies = tuple(policy for policy in policies if (policy.topology, policy.hints) in found)
        if not found:  # what is in force keeps the reason for which it was chosen, and what was predicted of it
            pool.untouched = False
            return self._audit(pool, "decided", pool.choice.topology, first.choice.reason, first.by, view)
        facts = pool_facts(pool.beats.values(), view, pool.places())
        waits = now_s - pool.switched_s < self._config.min_dwell_s or not self._budget.free(now_s)
        if waits or facts is None or self._rehearsal is not None:
            return []
        self._rehearsals += 1
        self._rehearsal = OpenRehearsal(
            number=self._rehearsals,
            pool=pool.name,
            began_s=now_s,
            deadline_s=now_s + config.timeout_s,
            view=view,
            proposals=found,
        )
        layouts = tuple(PastLayout(now_s - ended_s, split) for ended_s, split in pool.layouts)
        in_force = Policy(topology=pool.choice.topology, hints=pool.choice.hints, split=pool.split)
        return [
            Rehearse(
                number=self._rehearsals,
                pool=pool.name,
                window_s=config.window_s,
                facts=replace(facts, layouts=layouts),
                in_force=in_force,
                candidates=policies,
                timeout_s=config.timeout_s,
            )
        ]

    def _rehearsed(self, now_s: float, event: RehearsalAnswered) -> list[MetaEffect]:
        """Switches to the best candidate if its predicted gain is clear. An answer that is no longer awaited only costs
        its CPU time."""
        opened = self._rehearsal
        self._budget.spend(now_s if opened is None else opened.began_s, event.cpu_s)
        pool = self._pools.get(opened.pool) if opened is not None else None
        if opened is None or opened.number != event.number or pool is None:
            return []
        self._rehearsal = None
        if self._epoch is None or pool.mode in (Decider.PINNED, Decider.BYPASSED):
            return []
        names = ", ".join(f"{topology} by {p.by}" for (topology, _), p in opened.proposals.items())
        result, first = event.rehearsal, next(iter(opened.proposals.values())).by
        if result is None or result.abstains:
            reason = f"not rehearsed: {event.error}" if result is None else f"the rehearsal abstains: {result.abstains}"
            return self._audit(pool, "rejected", names, reason, first, opened.view)
        best = winner(self._config.rehearsal, result)
        if best is None:
            told = "; ".join(f"{c.policy.topology} by {c.policy.proposer}: {gain_told(c)}" for c in result.candidates)
            reason = f"no clear gain: {told}; the simulation misses by {100 * abs(result.miss):.1f} points"
            return self._audit(pool, "rejected", names, reason, first, opened.view)
        proposal = opened.proposals.get((best.policy.topology, best.policy.hints))
        if proposal is None:
            return []
        choice = replace(proposal.choice, reason=f"{gain_told(best)}; {proposal.choice.reason}")
        effects = self._propose(now_s, pool, choice, proposal.by, opened.view, predicted=best.gain)
        if pool.choice is choice:
            pool.prediction = PredictedGain(
                by=proposal.by,
                topology=choice.topology,
                gain=best.gain,
                before=opened.view.goodput_rate,  # what is compared with it is V_long, too
                due_s=now_s + self._config.rehearsal.observe_s,
            )
        return effects

    def _compare(self, now_s: float, pool: PoolState, view: VLong) -> list[MetaEffect]:
        """Records what a rehearsed switch brought, once V_long tells of nothing else, if it is still in force."""
        prediction = pool.prediction
        if prediction is None or (now_s < prediction.due_s and pool.choice.topology is prediction.topology):
            return []
        pool.prediction = None
        if self._epoch is None or pool.in_force().topology is not prediction.topology:
            return []
        observed = view.goodput_rate - prediction.before
        reason = f"{100 * prediction.gain:+.1f} points predicted, {100 * observed:+.1f} observed"
        return self._audit(
            pool, "outcome", prediction.topology, reason, prediction.by, view, predicted=prediction.gain,
            observed=observed,
        )  # fmt: skip

    def _propose(
        self,
        now_s: float,
        pool: PoolState,
        choice: Choice,
        selector: str,
        view: VLong,
        *,
        predicted: float | None = None,
    ) -> list[MetaEffect]:
        """Applies a selector's choice unless its topology is banned or the dwell is not over."""
        switch = choice.topology is not pool.choice.topology
        if choice.bypass:
            return [
                *self._bypass_changed(now_s, pool, Decider.BYPASSED, f"{selector}: {choice.reason}"),
                *self._publish_due(now_s, pool),
            ]
        if switch and pool.banned(now_s, choice.topology):
            reason = f"rolled back lately: {choice.reason}"
            return self._audit(pool, "rejected", choice.topology, reason, selector, view)
        if switch and now_s - pool.switched_s < self._config.min_dwell_s:
            reason = f"minimum dwell: {choice.reason}"
            return self._audit(pool, "rejected", choice.topology, reason, selector, view)
        pool.untouched = False
        if switch:
            pool.stable, pool.switched_s = pool.choice, now_s
            pool.enter(now_s, Decider.WATCHED)
        pool.choice, pool.chosen_by = choice, selector
        audit = self._audit(pool, "decided", choice.topology, choice.reason, selector, view, predicted=predicted)
        return [*audit, *self._publish_due(now_s, pool)]

    def _pinned(self, now_s: float, pin: Pin) -> list[MetaEffect]:
        """Sets or lifts an operator's pin. A pin ends the bypass and drops an open question; lifting it starts the
        guards anew."""
        pool = self._pool(now_s, pin.pool)
        before, pool.pin = pool.pin, pin if pin.topology is not None else None
        if before == pool.pin:
            return []
        pool.enter(now_s, Decider.PINNED if pool.pin is not None else Decider.FREE)
        pool.ask, pool.untouched, pool.switched_s = None, False, now_s
        if self._epoch is None:
            return []
        kind = "pinned" if pool.pin is not None else "unpinned"
        topology = pool.in_force().topology
        audit = self._audit(pool, kind, topology, f"by {pin.by or 'an operator'}", PIN, pool.long)
        return [*audit, *self._publish_due(now_s, pool)]

    def _resume(self, now_s: float, decision: TopologyDecision) -> None:
        self._seq = max(self._seq, min(decision.seq, MAX_SEQ))
        pool = self._pool(now_s, decision.pool)
        if self._epoch is None or (pool.untouched and decision.epoch < self._epoch):
            pool.resume(now_s, decision)
            pool.untouched = decision.selector == PIN

    # --- publication --------------------------------------------------------------------------------------------

    def _tick(self, now_s: float) -> list[MetaEffect]:
        horizon = now_s - self._config.pool_forgotten_after_s
        self._pools = {n: p for n, p in self._pools.items() if p.seen_s > horizon or p.pin is not None}
        if self._epoch is None:
            return []
        effects: list[MetaEffect] = []
        if self._rehearsal is not None and now_s >= self._rehearsal.deadline_s:
            late = f"no outcome in {self._config.rehearsal.timeout_s:g} s"
            effects += self._rehearsed(
                now_s, RehearsalAnswered(number=self._rehearsal.number, rehearsal=None, error=late)
            )
        for pool in self._pools.values():
            if pool.ask is not None and now_s >= pool.ask.deadline_s:
                effects += self._timed_out(now_s, pool, pool.ask)
            effects += self._publish_due(now_s, pool)
        return effects

    def _publish_due(self, now_s: float, pool: PoolState) -> list[MetaEffect]:
        """Publishes the decision in force if it has changed or its repetition is due. It is no longer repeated once
        views have stopped to come, except if it is a pin."""
        in_force = pool.in_force()
        blind = now_s - pool.view_s > self._config.view_stale_s and pool.pin is None
        repeat = now_s - pool.sent_s >= self._config.valid_for_s / 3.0
        if in_force == pool.sent and (blind or not repeat):
            return []
        self._seq += 1
        pool.sent, pool.sent_s = in_force, now_s
        return [PublishTopology(self._decision(pool))]

    def _decision(self, pool: PoolState) -> TopologyDecision:
        f = pool.in_force()
        return TopologyDecision(
            pool=pool.name,
            topology=f.topology,
            hints=f.hints,
            bypass=f.bypass,
            epoch=self._epoch or 0,
            seq=self._seq,
            valid_for_s=self._config.valid_for_s,
            reason=f.reason,
            selector=f.selector,
            layout=f.layout,
        )

    def _audit(
        self,
        pool: PoolState,
        kind: str,
        decision: str,
        reason: str,
        selector: str,
        view: VShort | VLong | None,
        *,
        predicted: float | None = None,
        observed: float | None = None,
    ) -> list[MetaEffect]:
        record = AuditRecord(
            source="meta",
            pool=pool.name,
            kind=kind,
            decision=str(decision),
            reason=reason,
            selector=selector,
            view_json=view_json(view),
            epoch=self._epoch or 0,
            seq=self._seq,
            predicted_gain=predicted,
            observed_gain=observed,
        )
        return [PublishAudit(record)]
