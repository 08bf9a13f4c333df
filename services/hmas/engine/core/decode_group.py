"""The decoding sequences, advanced all at once: a step costs the same work for 2 and for 200 of them.

Every member gains one KV slot when a step begins and one token when it ends, so a member's count of slots or tokens is
a constant plus the group's count of begun or ended steps. The pattern of steps that need new blocks repeats every
`block_size` steps, and the step in which a member finishes is known when it joins.
"""

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.chunking import Allowance, TokenDeadlines
from hmas.engine.core.sequence import Sequence


class DecodeGroup:
    """The decoding sequences by id, in the order in which they joined.

    A sequence joins between steps only; it may leave at any time.
    """

    def __init__(self, block_size: int) -> None:
        self.members: dict[str, Sequence] = {}
        self._block_size = block_size
        self._begun = 0
        self._ended = 0
        self._base: dict[str, tuple[int, int]] = {}  # id -> (context, generated) minus (begun, ended)
        self._context_base = 0
        self._phases = [0] * block_size  # members that need a block in steps with begun % block_size == index
        self._finishing: dict[int, dict[str, Sequence]] = {}  # ended -> members whose last token that step gives
        self._deadlines = TokenDeadlines()
        self._dues: dict[str, tuple[float, float]] = {}  # id -> (tpot_s, due time) as added to `_deadlines`
        self._unpaced: dict[str, Sequence] = {}  # members whose token deadlines start when the next step begins

    def __len__(self) -> int:
        return len(self.members)

    def join(self, seq: Sequence) -> None:
        context, generated = seq.context - self._begun, seq.generated - self._ended
        self.members[seq.id] = seq
        self._base[seq.id] = (context, generated)
        self._context_base += context
        self._phases[(1 - context) % self._block_size] += 1
        self._finishing.setdefault(seq.output_tokens - generated, {})[seq.id] = seq
        if seq.request.pace is not None:
            self._unpaced[seq.id] = seq

    def leave(self, seq: Sequence) -> None:
        """Removes a member and writes its context and token counts back to the sequence."""
        del self.members[seq.id]
        context, generated = self._base.pop(seq.id)
        self._context_base -= context
        self._phases[(1 - context) % self._block_size] -= 1
        finish = seq.output_tokens - generated
        last = self._finishing[finish]
        del last[seq.id]
        if not last:
            del self._finishing[finish]
        seq.context, seq.generated = context + self._begun, generated + self._ended
        if seq.request.pace is not None and self._unpaced.pop(seq.id, None) is None:
            self._deadlines.remove(*self._dues.pop(seq.id))

    def generated(self, seq: Sequence) -> int:
        return self._base[seq.id][1] + self._ended

    def pace(self, now_s: float) -> None:
        """Starts the token deadlines of the members that joined since the last step; the next begins at `now_s`."""
        for seq in self._unpaced.values():
            pace = seq.request.pace
            assert pace is not None
            if seq.first_due_s is None:
                # The tokens generated so far count as just in time.
                due_s = pace.first_due_s
                seq.first_due_s = now_s - (self.generated(seq) - 1) * pace.tpot_s if due_s is None else due_s
            due = self._dues[seq.id] = (pace.tpot_s, seq.first_due_s + self._base[seq.id][1] * pace.tpot_s)
            self._deadlines.add(*due)
        self._unpaced.clear()

    def allowance(self, now_s: float, bare_s: float, least_s: float) -> Allowance:
        """Returns what the members' deadlines leave to prefill; see `TokenDeadlines.allowance`."""
        return self._deadlines.allowance(now_s, self._ended, bare_s, least_s)

    def progress(self) -> list[tuple[str, int]]:
        """Returns (request id, tokens generated so far) of every member."""
        ended = self._ended
        return [(request_id, generated + ended) for request_id, (_, generated) in self._base.items()]

    @property
    def context_tokens(self) -> int:
        """Context tokens summed over the members; during a step the tokens being computed are included."""
        return self._context_base + len(self.members) * self._begun

    def blocks_needed(self) -> int:
        """Returns how many new KV blocks the next step takes."""
        return self._phases[(self._begun + 1) % self._block_size]

    def begin(self) -> None:
        self._begun += 1

    def end(self) -> list[Sequence]:
        """Ends the step; removes and returns the members that got their last token."""
        self._ended += 1
        finished = list(self._finishing.get(self._ended, {}).values())
        for seq in finished:
            self.leave(seq)
        return finished

    def look_ahead(self, now_s: float, until_s: float, cost: StepCostModel, free_blocks: int) -> tuple[int, float, int]:
        """Finds the steps, back to back, that end before `until_s`, finish no member and fit into `free_blocks`.

        Returns (number of steps, end of the last in s, blocks they take) and changes nothing. The end is summed step
        by step in the order in which single steps sum it, so that it is the same float.
        """
        seqs = len(self.members)
        most = min(self._finishing) - self._ended - 1 if self._finishing else 0
        fixed_s = cost.c0_s + cost.c_d_s * seqs
        per_context_s, size, phases = cost.c_k_s, self._block_size, self._phases
        context, begun = self.context_tokens, self._begun
        steps = blocks = 0
        while steps < most:
            context += seqs
            end_s = now_s + (fixed_s + per_context_s * context)
            taken = blocks + phases[(begun + steps + 1) % size]
            if end_s >= until_s or taken > free_blocks:
                break
            now_s, blocks = end_s, taken
            steps += 1
        return steps, now_s, blocks

    def skip(self, steps: int) -> None:
        """Advances the group by `steps` steps, as many as `look_ahead` found."""
        self._begun += steps
        self._ended += steps
