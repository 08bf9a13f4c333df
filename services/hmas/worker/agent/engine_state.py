"""One engine as the worker sees it: which requests run there, the memory they reserve, and how busy it is."""

from collections.abc import Sequence
from math import inf

from hmas.contracts.control import StepTime
from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import EngineSampled
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.flow import FlowRegulator
from hmas.worker.agent.memory_peak import MemoryPeak
from hmas.worker.agent.prefill_backlog import PrefillBacklog
from hmas.worker.agent.prefill_window import PrefillWindow
from hmas.worker.agent.prefix_cache import PrefixCache
from hmas.worker.agent.service_view import EngineOccupancy
from hmas.worker.agent.step_target import StepBase, worthy_slo_s


class EngineState:
    """The worker agent's record of one engine.

    `starts` counts how often the engine came up, so that a request lost on it may be tried on it after a restart.
    `n_run` and `b_token` are the limits in force; `cap` is the lesser of the two, and at most so many sequences are in
    flight. `leave_by_s`: it is no longer this worker's, and is released by then; None: it is. `suspected`: it left a
    run without a token for too long and has given none since; it then gets one request at a time, after a pause of
    `pause_s` seconds, and only if no other engine has room. `in_flight` counts those in the books (`running`) and
    `foreign` ones: what the engine runs beyond the books by its own count, for a gateway that the worker cannot hear or
    for a stranger. `foreign_blocks` are the KV blocks that these hold. `step` is what a step costs by what Statera has
    told; None: it has not. `contexts` is the sum of the tokens of context that each of `running` has in the middle of
    its answer.
    """

    __slots__ = (
        "_config",
        "_occupancy",
        "b_token",
        "base",
        "blocks",
        "budget_blocks",
        "busy_s",
        "busy_since_s",
        "cap",
        "contexts",
        "decoding",
        "excess",
        "foreign",
        "foreign_blocks",
        "grew",
        "held_until_s",
        "in_flight",
        "info",
        "leave_by_s",
        "missing",
        "n_run",
        "name",
        "pause_s",
        "peak",
        "peak_left",
        "peak_outgrown",
        "peak_s",
        "prefill",
        "prefix",
        "regulator",
        "running",
        "sample",
        "sample_unread",
        "sampled_s",
        "small_share",
        "starts",
        "step",
        "suspected",
        "up",
        "up_s",
        "window",
        "worthy_slo_s",
    )

    def __init__(self, info: EngineInfo, config: EngineStateConfig) -> None:
        self._config = config
        self.name = info.engine
        self.info = info
        self.up = False
        self.up_s = -inf  # when it came up
        self.leave_by_s: float | None = None
        self.starts = 0
        self.in_flight = self.foreign = self.foreign_blocks = 0
        self._occupancy: EngineOccupancy | None = None  # None: it has changed
        self.excess: int | None = None  # what the last sample counted beyond the books; None: no sample since it is up
        self.missing = 0  # requests in the books that the last sample did not show
        self.running: dict[str, QueueEntry] = {}  # in flight, by request id
        self.decoding = 0  # how many of `running` have a first token
        self.prefill = PrefillBacklog(config.prefill)
        self.window = PrefillWindow(config.window)
        self.prefix = PrefixCache(config.prefix)
        self.blocks = 0  # sum of the KV blocks that each of `running` holds at its end
        self.peak = MemoryPeak(())  # of `running`, as forecast at `peak_s`
        self.peak_s = -inf
        self.peak_outgrown = False  # a request outgrew its bound since `peak_s`, so that the forecast may be too low
        self.peak_left = False  # a request left since `peak_s`, so that the forecast may be too high
        self.budget_blocks = 0  # M_cap (1 - delta_frag) in blocks; 0: capacity unknown, no memory limit
        self.held_until_s = -inf  # the engine had no room: nothing is granted there before this instant
        self.suspected = False
        self.pause_s = 0.0
        self.grew = False  # its own counters have changed since that was last told
        self.step: StepTime | None = None
        self.contexts = 0.0
        self.small_share = 0.0  # of those granted lately, where a step's cost is known
        self.cap = self.n_run = self.b_token = 1
        self.regulator = FlowRegulator()
        self.sample: EngineSampled | None = None
        self.sample_unread = False  # the flow regulator has not used `sample` yet
        self.sampled_s = -inf
        self.worthy_slo_s = inf
        self.base = StepBase(config.base_memory_s)
        self.busy_s = 0.0
        self.busy_since_s = 0.0

    @property
    def start_id(self) -> str:
        return f"{self.name}#{self.starts}"

    @property
    def block_size(self) -> int:
        return self.info.block_size or self._config.default_block

    @property
    def prefix_tokens(self) -> int:
        """The memory that cached prompts may take, 0 if unknown; one block of it is never used."""
        return max(0, self.info.kv_capacity_tokens - self.block_size)

    @property
    def sequences(self) -> int:
        """The engine's own limit on running sequences, or the configured default if it does not report one."""
        return self.info.max_num_seqs or self._config.default_sequences

    def come_up(self, now_s: float) -> None:
        """Records another start of the engine: nothing is granted before a sample shows what it runs."""
        self.up, self.up_s = True, now_s
        self.starts += 1
        self.prefix.clear()
        self.prefix.block = self.block_size
        self.excess, self.missing = None, 0
        self.foreign = self.foreign_blocks = 0
        self._changed()

    def ready(self, now_s: float, uncounted_s: float) -> bool:
        """Returns whether the engine's own count has been seen since it came up; for one without a count, whether it
        has been up for `uncounted_s` seconds."""
        if self.sample is None or self.sampled_s < self.up_s:
            return False
        return self.sample.counted or now_s - self.up_s >= uncounted_s

    def adopt(self, now_s: float, entry: QueueEntry, prefill_s: float, first_token_s: float | None) -> None:
        """Records a request that runs here already, as its gateway says."""
        self.occupy(now_s, entry, prefill_s)
        if self.foreign:
            self.foreign_blocks -= self.foreign_blocks // self.foreign
            self.foreign -= 1
        self._changed()
        if first_token_s is not None:
            self.prefill.remove(now_s, entry, computed=False)  # it was not computed in this very moment
            self.began(now_s, entry)
            entry.first_token_s = first_token_s

    def occupy(self, now_s: float, entry: QueueEntry, prefill_s: float) -> None:
        """Records that `entry` was granted on this engine. `prefill_s`: predicted seconds that its prompt adds to
        the engine's steps."""
        if not self.running:
            self.busy_since_s = now_s
        if self.step is not None and self.running:
            self.small_share += self._config.small_smoothing * (self._is_small(entry) - self.small_share)
        self.running[entry.request.id] = entry
        self.blocks += entry.blocks
        self.expect(entry)
        self.peak.add(*_growth(entry, entry.blocks * self.block_size, self.block_size))
        self.prefill.add(now_s, entry, prefill_s)
        self._changed()

    def began(self, now_s: float, entry: QueueEntry) -> None:
        """Records that `entry`, which runs here, has its first token."""
        entry.first_token_s = now_s
        self.produced(entry, 1)
        self.decoding += 1
        self.prefill.remove(now_s, entry, computed=True)
        self._changed()

    def produced(self, entry: QueueEntry, output_tokens: int) -> None:
        """Records that `entry`, which runs here, has produced `output_tokens` in all; a lower number than before is
        ignored."""
        if output_tokens > entry.output_tokens:
            entry.output_tokens = output_tokens
            if entry.request.prompt_tokens + output_tokens > entry.context_tokens > 0.0:
                self.expect(entry)

    def expect(self, entry: QueueEntry) -> None:
        """Counts the context of `entry`, which runs here: that of half of its answer as it is predicted now, or what it
        has, if that is more."""
        before = entry.context_tokens
        entry.context_tokens = entry.mean_context
        self.contexts += entry.context_tokens - before
        self._occupancy = None

    def release(self, now_s: float, entry: QueueEntry) -> None:
        del self.running[entry.request.id]
        self.prefix.release(entry.request.prefix)
        self.blocks -= entry.blocks
        self.contexts = self.contexts - entry.context_tokens if self.running else 0.0
        entry.blocks, entry.context_tokens = 0, 0.0
        self.peak_left = True
        if entry.first_token_s is None:
            self.prefill.remove(now_s, entry, computed=entry.output_tokens > 0)
        else:
            self.decoding -= 1
        if not self.running:
            self.busy_s += now_s - self.busy_since_s
        self._changed()

    def reserve(self, entry: QueueEntry, blocks: int) -> None:
        """Changes the reservation of `entry`, which runs here, to `blocks` KV blocks at its end."""
        self.blocks += blocks - entry.blocks
        entry.blocks = blocks
        self.peak_outgrown = True
        self._changed()

    @property
    def room_s(self) -> float:
        """The time that a step has for sequences within the TPOT SLO worth keeping; infinite while that, or the step's
        cost, is not known. A base that was just learnt may leave none until that SLO is found anew."""
        return inf if self.step is None else self.worthy_slo_s - self.step.base_s

    @property
    def used_s(self) -> float:
        """The part of a step that what runs here takes in the mean over its answers; 0 while a step's cost is not
        known. What is not in the books counts as what is."""
        if self.step is None or not self.running:
            return 0.0
        own_s = len(self.running) * self.step.sequence_s + self.contexts * self.step.context_s
        return own_s * self.in_flight / len(self.running)

    @property
    def open(self) -> bool:
        """Whether some request may be granted here, by number and by the time of a step."""
        if self.in_flight >= self.cap:
            return False
        return self._has_time or self.used_s < self._config.small_room * self.room_s

    def has_time_for(self, entry: QueueEntry) -> bool:
        """Returns whether a step has time for one more request. Where what runs leaves no time for any, one that can
        be on time and is small may begin all the same, up to `small_room` times the room: it is soon done, and cannot
        wait for the long ones to end. So may a relegated one whose turn it is: as the head, it would hold up all."""
        if self._has_time:
            return True
        waits = not entry.has_turn and (entry.relegated or not self._is_small(entry))
        return not waits and self.used_s < self._config.small_room * self.room_s

    def _is_small(self, entry: QueueEntry) -> bool:
        """Whether the request takes little of a step beside what runs here; none does while a step's cost is not
        known."""
        if self.step is None:
            return False
        own_s = self.step.sequence_s + self.step.context_s * entry.mean_context
        return own_s * self.in_flight <= self._config.small * self.used_s

    def memory_for(self, entry: QueueEntry, blocks: int) -> int:
        """Returns how many KV blocks all that runs here may hold, by its bounds, once `entry` is granted, which holds
        `blocks` at its end. For a small one that can be on time that is all there are, without the margin: it is soon
        done."""
        large = entry.relegated or blocks * len(self.running) > self._config.small * self.blocks
        return (self.budget_blocks if large else self.info.kv_capacity_tokens // self.block_size) - self.foreign_blocks

    @property
    def _has_time(self) -> bool:
        """Whether a step has time for any request. Where small ones come, a part of it is theirs. An idle engine takes
        one whatever its steps cost. What they are expected to take is not believed, up to `short_room` times the room,
        while they are measured to be shorter than the share `short_step` of the SLO."""
        config, used_s, room_s = self._config, self.used_s, self.room_s
        open_to_any = config.large_room if self.small_share > config.small_seen else 1.0
        if used_s < open_to_any * room_s or not self.in_flight:
            return True
        sample = self.sample
        short = sample is not None and sample.step_s < config.short_step * self.worthy_slo_s
        return short and used_s < config.short_room * room_s

    def limit(self, n_run: int, b_token: int) -> None:
        self.n_run, self.b_token = n_run, b_token
        self._set_cap()

    def _set_cap(self) -> None:
        self.cap = 1 if self.suspected else max(1, min(self.n_run, self.b_token))
        self._changed()

    def suspect(self, now_s: float) -> None:
        """Records that the engine left a run without a token for too long; several runs that stall at once count as
        one."""
        config = self._config
        if not self.suspected or now_s >= self.held_until_s:
            self.pause_s = min(config.max_suspect_pause_s, max(config.suspect_pause_s, 2.0 * self.pause_s))
            self.held_until_s = now_s + self.pause_s
        self.suspected = True
        self._set_cap()

    def trust(self) -> None:
        """Records that the engine gave a token."""
        self.suspected, self.pause_s, self.held_until_s = False, 0.0, -inf
        self._set_cap()

    def on_trial(self, now_s: float) -> bool:
        """Returns whether the engine is suspected and may be given a request, to see whether it answers."""
        return self.suspected and self.in_flight < self.cap and now_s >= self.held_until_s

    @property
    def stands_still(self) -> bool:
        """Whether the last sample of its own counters shows that no token was computed since the one before."""
        sample = self.sample
        if sample is None or not sample.counted:
            return False
        return sample.decode_tokens_per_s == 0.0 and sample.prefill_tokens_per_s == 0.0

    def generating(self, now_s: float) -> bool | None:
        """Returns whether the engine's own counters have changed since that was last told; None if they are unknown or
        were read too long ago."""
        known = self.sample is not None and self.sample.counted and self.up
        return self.grew if known and now_s - self.sampled_s <= self._config.counters_fresh_s else None

    def _changed(self) -> None:
        self.in_flight = len(self.running) + self.foreign
        self._occupancy = None

    def peak_fits(self, now_s: float, entry: QueueEntry, blocks: int, budget: int) -> bool:
        """Returns whether the running requests and `entry` will never hold more than `budget` KV blocks at once, if
        `entry` began now and held `blocks` at its end.

        While nobody outgrows a bound, a forecast stays one as time passes and requests leave: it only becomes too high.
        So it is made anew where it says no, or is old.
        """
        size, age_s = self.block_size, now_s - self.peak_s
        growth = _growth(entry, blocks * size, size)
        if not self.peak_outgrown and age_s <= self._config.peak_kept_s:
            if self.peak.with_another(*growth) <= budget * size:
                return True
            if not self.peak_left and age_s <= self._config.peak_fresh_s:
                return False
        self._forecast(now_s)
        return self.peak.with_another(*growth) <= budget * size

    def _forecast(self, now_s: float) -> None:
        size = self.block_size
        rows = []
        for entry in self.running.values():  # `_growth`, written out: this is done for every engine in every cycle
            held = entry.request.prompt_tokens + entry.output_tokens
            last = entry.blocks * size
            rows.append((last - held if last > held else 0, held + size - 1))
        self.peak = MemoryPeak(rows)
        self.peak_s, self.peak_outgrown, self.peak_left = now_s, False, False

    def presume(self, now_s: float) -> None:
        """Counts prefills as done whose first token cannot be seen because the answer is not streamed.

        It does so once a request has run for `presumed` times its predicted time to first token.
        """
        for entry in self.prefill.entries():
            since_s = now_s if entry.granted_s is None else entry.granted_s
            if not entry.request.stream and now_s - since_s > self._config.presumed * (entry.prefill_s + entry.tpot_s):
                self.prefill.remove(now_s, entry, computed=False)

    def take_busy_s(self, now_s: float) -> float:
        """Returns the seconds since the last call during which at least one request ran here."""
        busy_s, self.busy_s = self.busy_s, 0.0
        if self.running:
            busy_s += now_s - self.busy_since_s
            self.busy_since_s = now_s
        return busy_s

    def see(self, now_s: float, sample: EngineSampled, settled_s: float) -> int:
        """Takes a sample, which shows the engine at `now_s`; returns how many requests of the books it does not have.

        Books and engine differ for a moment whenever a request begins or ends. Therefore a difference counts if two
        samples in a row show it, and a grant is looked for once it is older than `settled_s` seconds. The first sample
        since the engine came up counts at once.
        """
        if sample.counted:
            held = 0.0 if self.sample is None else self.sample.kv_usage
            self.grew |= (
                sample.decode_tokens_per_s > 0.0 or sample.prefill_tokens_per_s > 0.0 or sample.kv_usage != held
            )
        self.base.add(now_s, sample.running, sample.step_s)
        self.window.see_step(now_s, sample.step_s)
        self.window.paced = sample.paced
        self.sample = sample
        self.sampled_s = now_s
        self.sample_unread = True
        if not sample.counted or now_s < self.up_s:
            return 0
        count = sample.running + sample.waiting
        excess = max(0, count - len(self.running))
        self.foreign = excess if self.excess is None else min(excess, self.excess)
        self.excess = excess
        held = sample.kv_usage * self.info.kv_capacity_tokens / self.block_size
        self.foreign_blocks = int(held * self.foreign / count) if count else 0
        self._changed()
        settled = sum(1 for e in self.running.values() if e.granted_s is not None and now_s - e.granted_s > settled_s)
        missing = max(0, settled - count)
        gone, self.missing = min(missing, self.missing), missing
        return gone

    def aim(self, offered_slos_s: Sequence[float]) -> None:
        """Sets the TPOT SLO that the engine's step is held to, by those of the requests that are offered."""
        base_s = self.base.seconds if self.step is None else self.step.base_s
        self.worthy_slo_s = worthy_slo_s(offered_slos_s, base_s)
        self._occupancy = None

    def measured(self, now_s: float) -> bool:
        """Returns whether the engine's last sample is recent enough to regulate by."""
        return now_s - self.sampled_s <= self._config.sample_fresh_s

    def step_now_s(self, now_s: float) -> float:
        """Returns what a step takes by the last sample; 0 if the engine is idle, or the sample is old."""
        return self.sample.step_s if self.sample is not None and self.in_flight and self.measured(now_s) else 0.0

    def utilisation(self, now_s: float) -> float:
        """Returns the use of the engine's binding resource (DESIGN §5.5): the larger of KV use and step time over the
        TPOT SLO worth keeping (`step_target.py`).

        It is 1 where the resource is used up, may be above 1, and is 0 if there is no recent sample.
        """
        if self.sample is None or not self.measured(now_s):
            return 0.0
        return max(self.sample.kv_usage, self.sample.step_s / self.worthy_slo_s)

    def occupancy(self, now_s: float) -> EngineOccupancy:
        """Returns what the engine holds and may hold, as topologies see it."""
        if self._occupancy is not None:
            return self._occupancy
        block, held, lasting = self.block_size, self.blocks, True
        if held * self._config.plenty > self.budget_blocks > 0:
            if now_s - self.peak_s > self._config.peak_kept_s:
                self._forecast(now_s)
            held, lasting = min(held, int(self.peak.tokens / block)), False
        held += self.foreign_blocks
        occupancy = EngineOccupancy(
            cap=self.cap,
            running=self.in_flight,
            kv_tokens=self.budget_blocks * block,
            kv_free_tokens=max(0, self.budget_blocks - held) * block,
            prefill_pace=self.prefill.pace,
            prefill_wait_s=self.prefill.wait_s,
            step=self.step if 0.0 < self.room_s < inf else None,
            room_s=self.room_s,
            used_s=self.used_s,
        )
        self._occupancy = occupancy if lasting else None
        return occupancy


def _growth(entry: QueueEntry, last: int, block: int) -> tuple[int, int]:
    """Returns (left, held): the tokens that `entry` has yet to grow by, and those that it holds now.

    `last`: tokens that it holds at its end. `held` counts the newest KV block in full, as it is taken with its first
    token.
    """
    held = entry.request.prompt_tokens + entry.output_tokens
    return max(0, last - held), held + block - 1
