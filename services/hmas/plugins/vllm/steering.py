"""Steering of vLLM's scheduler around each `schedule()`: caps, prefill chunk, and order of the waiting queue.

This is the only module that handles attributes that differ between vLLM versions.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.channel import ControlChannel
from hmas.plugins.vllm.chunking import MIN_CHUNK_TOKENS, DecodePace, StepCost

Fault = Callable[[str], None]
REMEMBERED_PACES = 1024  # entries; beyond this, those of ended requests are deleted


class Steering:
    """Steers one vLLM scheduler: `before` and `after` are called around each `schedule()`.

    They never raise: an exception is counted in `faults`, and the scheduler's own limits are restored. `fault` gets a
    message about the first and then every 1000th exception.
    """

    def __init__(
        self, scheduler: Any, channel: ControlChannel, fault: Fault, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._channel = channel
        self._fault = fault
        self._clock = clock
        # From 0.31 on vLLM has a cap on admissions apart from the model runner's slots; before, one cap is both.
        self._cap_name = "max_num_active_reqs" if hasattr(scheduler, "max_num_active_reqs") else "max_num_running_reqs"
        self._own_cap: int = getattr(scheduler, self._cap_name)
        self._own_budget: int = scheduler.max_num_scheduled_tokens
        self._per_sequence = 1 + int(getattr(scheduler, "num_spec_tokens", 0) or 0)
        self._chunkable = _chunkable(scheduler)
        self._cost = StepCost()
        self._paces: dict[str, DecodePace] = {}
        self._unordered = False
        self._decode_tokens = 0  # of the step being scheduled
        self._step: tuple[float, int] | None = None  # begin (s) and prefill tokens of the last step that was not idle
        self._seq = 0
        self._steps = 0
        self.faults = 0

    def added(self) -> None:
        """Notes that a request entered the waiting queue, which must be ordered again."""
        self._unordered = True

    def before(self) -> None:
        try:
            now_s = self._clock()
            self._learn(now_s)
            block = self._channel.current(now_s)
            self._seq = block.seq if block else 0
            self._cap(block)
            self._budget(now_s)
            if self._unordered:
                self._order()
                self._unordered = False
            self._step = (now_s, 0)
        except Exception as error:
            self._failed(error)

    def after(self, output: Any) -> None:
        try:
            self._steps += 1
            if self._step is not None:
                prefill_tokens = output.total_num_scheduled_tokens - self._decode_tokens
                idle = not output.total_num_scheduled_tokens
                self._step = None if idle else (self._step[0], max(0, prefill_tokens))
            self._channel.tell(self._clock(), self._status())
        except Exception as error:
            self._failed(error)

    # --- N_run and B_token

    def _cap(self, block: ControlBlock | None) -> None:
        """Caps running requests by the lesser of N_run and the sequences whose decode tokens fit into B_token."""
        cap = self._own_cap
        if block is not None:
            cap = min(cap, block.n_run or cap, max(1, block.b_token // self._per_sequence) if block.b_token else cap)
        cap = max(1, cap)
        if self._cap_name == "max_num_running_reqs":
            cap = max(cap, len(self._scheduler.running))  # a smaller one fails an assertion that ends vLLM
        setattr(self._scheduler, self._cap_name, cap)

    # --- the prefill chunk

    def _budget(self, now_s: float) -> None:
        """Sets the step's token budget: all decode tokens, and a prefill chunk that fits the decodes' slack."""
        scheduler = self._scheduler
        decodes, prefills = self._split(scheduler.running)
        self._decode_tokens = sum(_pending_tokens(request) for request in decodes)
        budget = self._own_budget
        if self._chunkable and decodes and (prefills or scheduler.waiting):
            slack_s = self._slack_s(now_s, decodes)
            chunk = self._cost.chunk(slack_s, most=budget)
            if chunk < budget - self._decode_tokens:
                budget = self._decode_tokens + chunk
                if prefills:  # decodes are scheduled first; the rest of the budget is the chunk
                    scheduler.running[:] = decodes + prefills
        scheduler.max_num_scheduled_tokens = budget

    def _split(self, running: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        decodes: list[Any] = []
        prefills: list[Any] = []
        for request in running:
            (decodes if request.num_computed_tokens >= request.num_prompt_tokens else prefills).append(request)
        return decodes, prefills

    def _slack_s(self, now_s: float, decodes: Iterable[Any]) -> float:
        """Returns the least slack (s) of decoding requests whose TPOT this engine can meet; infinite without any."""
        least_s = math.inf
        for request in decodes:
            pace = self._paces.get(request.request_id) or self._pace(now_s, request)
            if math.isfinite(pace.tpot_s) and pace.tpot_s >= self._cost.decode_s:
                least_s = min(least_s, pace.slack_s(now_s, _tokens_under_way(request)))
        if len(self._paces) > REMEMBERED_PACES:
            alive = self._scheduler.requests
            self._paces = {name: pace for name, pace in self._paces.items() if name in alive}
        return least_s

    def _pace(self, now_s: float, request: Any) -> DecodePace:
        """Starts the deadlines of a request first seen decoding; its tokens so far count as just in time."""
        tpot_s = _number(request, "hmas_tpot_ms", math.inf) / 1000
        pace = DecodePace(tpot_s if tpot_s > 0 else math.inf, now_s)
        if math.isfinite(pace.tpot_s):
            pace.first_s -= max(0, request.num_output_tokens - 1) * pace.tpot_s
        self._paces[request.request_id] = pace
        return pace

    def _learn(self, now_s: float) -> None:
        """Updates the cost estimates by the time since the last step's begin, unless the engine was idle in between."""
        if self._step is not None and self._scheduler.running:
            self._cost.observe(now_s - self._step[0], self._step[1])

    # --- order

    def _order(self) -> None:
        """Sorts the waiting queue by urgency; under vLLM's priority policy the queue is a heap and stays as it is."""
        waiting = self._scheduler.waiting
        if isinstance(waiting, deque) and len(waiting) > 1:
            ordered = sorted(waiting, key=_rank)
            waiting.clear()
            waiting.extend(ordered)

    # --- faults

    def _failed(self, error: Exception) -> None:
        self.faults += 1
        self._step = None
        cap = max(self._own_cap, len(self._scheduler.running))
        setattr(self._scheduler, self._cap_name, cap if self._cap_name == "max_num_running_reqs" else self._own_cap)
        self._scheduler.max_num_scheduled_tokens = self._own_budget
        if self.faults == 1 or self.faults % 1000 == 0:
            self._fault(
                f"steering failed ({self.faults} so far); engine's own limits apply: {type(error).__name__}: {error}"
            )

    def _status(self) -> StatusBlock:
        scheduler = self._scheduler
        return StatusBlock(
            seq=self._seq,
            cap=getattr(scheduler, self._cap_name),
            token_budget=scheduler.max_num_scheduled_tokens,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            steps=self._steps,
            refused=self._channel.refused,
            faults=self.faults,
        )


def _chunkable(scheduler: Any) -> bool:
    """Tells whether a prompt may be cut into chunks of any size.

    Where it may not, or only at boundaries of the model, a smaller token budget could hold a request back for ever.
    """
    return (
        bool(scheduler.scheduler_config.enable_chunked_prefill)
        and not getattr(scheduler, "need_mamba_block_aligned_split", False)
        and not getattr(scheduler, "max_num_encoder_input_tokens", 0)
        and getattr(scheduler, "num_prefill_lookahead", 0) < MIN_CHUNK_TOKENS
    )


def _pending_tokens(request: Any) -> int:
    """Returns the tokens that a decoding request takes in the next step: one and its draft tokens."""
    pending = request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens
    return max(1, int(pending))


def _tokens_under_way(request: Any) -> int:
    """Returns the tokens that a request has, including those of a step that async scheduling has already begun."""
    return int(request.num_output_tokens + request.num_output_placeholders)


def _rank(request: Any) -> tuple[bool, float]:
    """Returns a waiting request's sort key: preempted requests first, because they had their turn; then by urgency."""
    return not request.num_preemptions, _number(request, "hmas_urgency", math.inf)


def _number(request: Any, name: str, default: float) -> float:
    """Returns a finite number from a request's `vllm_xargs`, otherwise `default`.

    Clients that reach the engine directly may put anything there.
    """
    params = request.sampling_params
    extra = params.extra_args if params is not None else None
    value = extra.get(name) if extra else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    try:
        number = float(value)
    except OverflowError:
        return default
    return number if math.isfinite(number) else default
