"""One engine as the worker sees it: its life, what runs there, what a step has time for, and what it counts itself."""

from collections.abc import Sequence
from math import inf

from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import EngineSampled
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.counts import EngineCounts
from hmas.worker.agent.engines.flow import FlowRegulator
from hmas.worker.agent.engines.life import EngineLife
from hmas.worker.agent.engines.prefill_backlog import PrefillBacklog
from hmas.worker.agent.engines.prefill_window import PrefillWindow
from hmas.worker.agent.engines.prefix_cache import PrefixCache
from hmas.worker.agent.engines.service_view import EngineOccupancy
from hmas.worker.agent.engines.step_room import StepRoom
from hmas.worker.agent.entry.entry import QueueEntry


class EngineState:
    """The worker agent's record of one engine.

    `n_run` and `b_token` are the limits in force; `cap` is the lesser of the two, and at most so many sequences are in
    flight. A suspected engine gets one request at a time, after a pause, and only if no other engine has room.
    """

    __slots__ = (
        "_config", "_occupancy", "b_token", "books", "budget_blocks", "cap", "counts", "info", "life", "n_run", "name",
        "prefix", "regulator", "step_room", "window",
    )  # fmt: skip

    def __init__(self, info: EngineInfo, config: EngineStateConfig) -> None:
        self._config = config
        self.name = info.engine
        self.info = info
        self.life = EngineLife(config)
        self.books = EngineBooks(config, self.block_size)
        self.counts = EngineCounts(config, self.books)
        self.step_room = StepRoom(config, self.books, self.counts)
        self.window = PrefillWindow(config.window)
        self.prefix = PrefixCache(config.prefix)
        self.regulator = FlowRegulator()
        self.budget_blocks = 0  # M_cap (1 - delta_frag) in blocks; 0: capacity unknown, no memory limit
        self.cap = self.n_run = self.b_token = 1
        self._occupancy: EngineOccupancy | None = None  # None: it has changed

    @property
    def start_id(self) -> str:
        return f"{self.name}#{self.life.starts}"

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

    @property
    def running(self) -> dict[str, QueueEntry]:
        """The requests in the books, by id."""
        return self.books.running

    @property
    def prefill(self) -> PrefillBacklog:
        return self.books.prefill

    @property
    def in_flight(self) -> int:
        """How many requests run there, those in the books and foreign ones."""
        return self.counts.in_flight

    def describe(self, info: EngineInfo) -> None:
        """Takes over what is known of the engine now."""
        self.info = info
        self.books.block_size = self.block_size

    def come_up(self, now_s: float) -> None:
        """Records another start of the engine: nothing is granted before a sample shows what it runs."""
        self.life.come_up(now_s)
        self.prefix.clear()
        self.prefix.block = self.block_size
        self.counts.restart()
        self._changed()

    def ready(self, now_s: float, uncounted_s: float) -> bool:
        """Returns whether the engine's own count has been seen since it came up; for one without a count, whether it
        has been up for `uncounted_s` seconds."""
        sample = self.counts.sample
        if sample is None or not self.life.seen:
            return False
        return sample.counted or now_s - self.life.up_s >= uncounted_s

    def adopt(self, now_s: float, entry: QueueEntry, prefill_s: float | None, first_token_s: float | None) -> None:
        """Records a request that runs here already, as its gateway says."""
        self.occupy(now_s, entry, prefill_s)
        self.adopt_one()
        if first_token_s is not None:
            self.books.prefill.remove(now_s, entry, computed=False)  # it was not computed in this very moment
            self.began(now_s, entry)
            entry.first_token_s = first_token_s

    def adopt_one(self) -> None:
        """Takes one of those that run here beyond the books for one that these have from now on."""
        self.counts.adopt_one()
        self._changed()

    def occupy(self, now_s: float, entry: QueueEntry, prefill_s: float | None) -> None:
        """Records that `entry` was granted on this engine. `prefill_s`: predicted seconds that its prompt adds to
        the engine's steps; None: another engine computes it."""
        self.step_room.granted(entry)
        self.books.occupy(now_s, entry, prefill_s)
        self._changed()

    def began(self, now_s: float, entry: QueueEntry) -> None:
        """Records that `entry`, which runs here, has its first token."""
        self.books.began(now_s, entry)
        self._changed()

    def produced(self, entry: QueueEntry, output_tokens: int) -> None:
        """Records that `entry`, which runs here, has produced `output_tokens` in all; a lower number than before is
        ignored."""
        if self.books.produced(entry, output_tokens):
            self._occupancy = None

    def count_context(self, entry: QueueEntry) -> None:
        """Counts the context of `entry`, which runs here, by its present prediction."""
        self.books.count_context(entry)
        self._occupancy = None

    def release(self, now_s: float, entry: QueueEntry) -> None:
        self.prefix.release(entry.request.prefix)
        self.books.release(now_s, entry)
        self._changed()

    def reserve(self, entry: QueueEntry, blocks: int) -> None:
        """Changes the reservation of `entry`, which runs here, to `blocks` KV blocks at its end."""
        self.books.reserve(entry, blocks)
        self._changed()

    def keep(self, blocks: int) -> None:
        """Counts so many more KV blocks for prompts that other engines are to read."""
        self.books.kept_blocks += blocks
        self._changed()

    @property
    def open(self) -> bool:
        """Whether some request may be granted here, by number and by the time of a step."""
        return self.counts.in_flight < self.cap and self.step_room.open

    def memory_for(self, entry: QueueEntry, blocks: int) -> int:
        """Returns how many KV blocks all that runs here may hold, by its bounds, once `entry` is granted, which holds
        `blocks` at its end. For a small one that can be on time that is all there are, without the margin: it is soon
        done."""
        books = self.books
        large = entry.relegated or blocks * len(books.running) > self._config.small * books.blocks
        most = self.budget_blocks if large else self.info.kv_capacity_tokens // self.block_size
        return most - self.counts.foreign_blocks - books.kept_blocks

    def limit(self, n_run: int, b_token: int) -> None:
        self.n_run, self.b_token = n_run, b_token
        self._set_cap()

    def suspect(self, now_s: float) -> None:
        """Records that the engine left a run without a token for too long."""
        self.life.suspect(now_s)
        self._set_cap()

    def trust(self) -> None:
        """Records that the engine gave a token."""
        self.life.trust()
        self._set_cap()

    def on_trial(self, now_s: float) -> bool:
        """Returns whether the engine is suspected and may be given a request, to see whether it answers."""
        return self.life.suspected and self.counts.in_flight < self.cap and now_s >= self.life.held_until_s

    def generating(self, now_s: float) -> bool | None:
        """Returns whether the counters of the engine, if it is up and awake, have changed since that was last told. It
        is None if they are unknown or were read too long ago."""
        return self.counts.generating(now_s) if self.life.answers and not self.life.asleep else None

    def see(self, now_s: float, sample: EngineSampled, settled_s: float) -> int:
        """Takes a sample, which shows the engine at `now_s`; returns how many requests of the books it does not have
        (`EngineCounts.compare`). Of an engine that is asleep no figure is believed."""
        if sample.sleep_level is not None:
            self.life.see(now_s, asleep=True)
            return 0
        if self.life.asleep:
            self.counts.restart()  # what was counted before the sleep tells nothing
        self.step_room.base.add(now_s, sample.running, sample.step_s)
        self.window.see_step(now_s, sample.step_s)
        self.window.paced = sample.paced
        self.counts.take(now_s, sample)
        self.life.see(now_s)
        if not sample.counted or now_s < self.life.up_s:
            return 0
        gone = self.counts.compare(now_s, sample, self.info.kv_capacity_tokens, settled_s)
        self._changed()
        return gone

    def aim(self, offered_slos_s: Sequence[float]) -> None:
        """Sets the TPOT SLO that the engine's step is held to, by those of the requests that are offered."""
        self.step_room.aim(offered_slos_s)
        self._occupancy = None

    def utilisation(self, now_s: float) -> float:
        """Returns the use of the engine's binding resource (DESIGN §5.5): the larger of KV use and step time over the
        TPOT SLO worth keeping (`step_target.py`).

        It is 1 where the resource is used up, may be above 1, and is 0 if there is no recent sample.
        """
        sample = self.counts.sample
        if sample is None or not self.counts.measured(now_s):
            return 0.0
        return max(sample.kv_usage, sample.step_s / self.step_room.worthy_slo_s)

    def occupancy(self, now_s: float) -> EngineOccupancy:
        """Returns what the engine holds and may hold, as topologies see it."""
        if self._occupancy is not None:
            return self._occupancy
        books, room = self.books, self.step_room
        block, held, lasting = self.block_size, books.blocks, True
        if held * self._config.plenty > self.budget_blocks > 0:
            held, lasting = min(held, books.peak_blocks(now_s)), False
        held += self.counts.foreign_blocks + books.kept_blocks
        room_s = room.room_s
        occupancy = EngineOccupancy(
            cap=self.cap,
            running=self.counts.in_flight,
            kv_tokens=self.budget_blocks * block,
            kv_free_tokens=max(0, self.budget_blocks - held) * block,
            prefill_pace=books.prefill.pace,
            prefill_wait_s=books.prefill.wait_s,
            step=room.step if 0.0 < room_s < inf else None,
            room_s=room_s,
            used_s=room.used_s,
        )
        self._occupancy = occupancy if lasting else None
        return occupancy

    def _set_cap(self) -> None:
        self.cap = 1 if self.life.suspected else max(1, min(self.n_run, self.b_token))
        self._changed()

    def _changed(self) -> None:
        self.counts.add_up()
        self._occupancy = None
