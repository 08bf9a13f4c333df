"""Which worker probably holds which beginnings of prompts, by what was sent to it.

A table of fixed size maps the nodes of `PrefixChain` to holders: each worker is one. A holder is taken to keep what was
used last, up to its engines' KV memory: its tokens are counted by epoch of last use, and the oldest epochs are dropped
when the sum exceeds the memory. A node is held while its epoch is. Nodes that many hold, such as a system prompt's,
stand in a small table of their own.

A look into a table of many megabytes costs misses of the processor's caches rather than instructions. All of a set
stands side by side, therefore, and before both tables stands a counting filter with a byte for what shares its last
bits: most nodes of a prompt's new end are known to be in neither table by one byte of it.
"""

from array import array
from collections import OrderedDict, deque
from sys import byteorder

from hmas.contracts.job import PrefixChain

WAYS = 8  # slots in which a node may stand; of a full set the slot that was written longest ago is overwritten
FEW = 4  # holders by which a node stands in the large table; with more it moves to the small one
EPOCHS = 64  # into which the tokens of a holder are divided
SET_BYTES = 14 * WAYS  # of a set: 8 of each node, then 4 of each epoch, then 2 of each holder
NODE_STEP, EPOCH_STEP, HOLDER_STEP = SET_BYTES // 8, SET_BYTES // 4, SET_BYTES // 2  # from one set to the next
NODES_BYTES = 8 * WAYS  # of a set
MORE = 0x8000  # marks in a slot's holder that its node may stand in another slot of the set, too
MAX_HOLDERS = 0x7FFF
NEVER = 2**32 - 1  # an epoch that does not come
FILTER_BYTES = 4  # for each slot
ALONE, SHARED, FULL = 1, 2, 255  # what a node counts in the filter: in a slot, in the small table; and the most


# Who holds how much of a prompt: tokens by holder; and for its nodes that many hold, the deepest first, the tokens and
# the epochs of their last use by holder.
Held = tuple[dict[int, int], list[tuple[int, dict[int, int]]]]


class Holder:
    """What one worker holds. `capacity` is in tokens. These were last used in the epochs from `floor` to `epoch`, of
    which `floor` stands among the `floors` of all holders."""

    __slots__ = ("_buckets", "_floors", "_inflow", "_number", "capacity", "epoch", "tokens")

    def __init__(self, number: int, floors: "array[int]", epoch: int, capacity: int) -> None:
        self._number, self._floors = number, floors
        self.capacity = capacity
        self.clear(epoch)

    @property
    def floor(self) -> int:
        return self._floors[self._number]

    def clear(self, epoch: int) -> None:
        """Forgets all that was used before the epoch."""
        self.epoch = self._floors[self._number] = epoch
        self.tokens = self._inflow = 0
        self._buckets = deque([0])  # tokens by epoch of their last use, from `floor` to `epoch`

    def use(self, before: int, tokens: int) -> int:
        """Counts tokens as used now that were last used in the epoch `before`; returns the present epoch."""
        if before >= self.floor:
            self._buckets[before - self.floor] -= tokens
        else:
            self.tokens += tokens
        self._buckets[-1] += tokens
        self._inflow += tokens
        if self._inflow * EPOCHS > self.capacity:
            self._inflow = 0
            self.epoch += 1
            self._buckets.append(0)
            while self.tokens > self.capacity and self.floor < self.epoch:
                self.cut(self.floor)
        return self.epoch

    def cut(self, epoch: int) -> None:
        """Forgets what was last used in this epoch or before."""
        if epoch >= self.epoch:
            self.clear(self.epoch + 1)
        while self.floor <= epoch:
            self.tokens -= self._buckets.popleft()
            self._floors[self._number] += 1


class PrefixIndex:
    """The table. It holds at most `max_nodes` pairs of a node and a holder, and as much room again stays free. Of nodes
    that many hold there are at most `max_shared`, and as many pairs again. Nodes are digests: their bits are
    random, and none is 0.

    `floors` are the first epochs of what holders have, by number, `NEVER` where there is no such holder. `trusts` are
    the shares of what was expected of holders that was there."""

    def __init__(self, max_nodes: int, max_shared: int = 4_096) -> None:
        sets = 1 << max(0, (2 * max_nodes // WAYS - 1).bit_length())
        self._mask = sets - 1
        self._sets = bytearray(SET_BYTES * sets)  # in which the bytes of a node are found faster than its number
        view = memoryview(self._sets)
        self._nodes = view.cast("Q")
        self._epochs, self._holders = view.cast("I")[2 * WAYS :], view.cast("H")[6 * WAYS :]
        self._turns = bytearray(sets)  # the slot of each set that is overwritten next
        self._filter = bytearray(FILTER_BYTES * WAYS * sets)
        self._filter_mask = len(self._filter) - 1
        self._shared: OrderedDict[int, dict[int, int]] = OrderedDict()  # epoch of last use by holder, by node
        self._max_shared, self._max_pairs = max_shared, max_nodes
        self._pairs = 0  # of a node and a holder in that table
        self.holders: dict[int, Holder] = {}  # by number
        self.floors = array("I", [NEVER]) * (MAX_HOLDERS + 1)
        self.trusts = array("d", [1.0]) * (MAX_HOLDERS + 1)
        self._free: list[tuple[int, int]] = []  # numbers of holders that left, with the epoch from which they are free

    def __len__(self) -> int:
        """Returns how many pairs of nodes that many hold there are; the large table has its size from the
        start."""
        return self._pairs

    @property
    def bytes(self) -> int:
        """The memory of the large table and of the filter."""
        return len(self._sets) + len(self._turns) + len(self._filter)

    def enter(self, capacity: int) -> int:
        """Returns the number of a new holder of up to `capacity` tokens, of at most `MAX_HOLDERS`."""
        number, epoch = self._free.pop() if self._free else (len(self.holders), 1)
        self.holders[number] = Holder(number, self.floors, epoch, capacity)
        self.trusts[number] = 1.0
        return number

    def leave(self, number: int) -> None:
        self._free.append((number, self.holders.pop(number).epoch + 1))
        self.floors[number] = NEVER

    def held(self, chain: PrefixChain, most: int) -> Held:
        """Returns who holds how much of a prompt: tokens by holder, for at most about `most`, those with the most
        first; and for its nodes that many hold, the deepest first, the tokens and the epochs by holder. Below the
        deepest node that is found, only every node at half the depth of the last is looked up, and of these none that
        stands in one slot alone: it is that holder's own, which has all before its deepest node."""
        found: dict[int, int] = {}
        shared: list[tuple[int, dict[int, int]]] = []
        find, holders, epochs, floors, many_of = (
            self._sets.find,
            self._holders,
            self._epochs,
            self.floors,
            self._shared.get,
        )
        nodes, ends, mask, counts, counts_mask = chain.nodes, chain.ends, self._mask, self._filter, self._filter_mask
        i, step, few = len(nodes), 1, 0
        while i > 0:
            i = i - 1 if step else i // 2
            node = nodes[i]
            count = counts[node & counts_mask]
            if count <= few:
                continue
            if count >= SHARED:
                many = many_of(node)
                if many is not None:
                    shared.append((ends[i], many))
                    step = 0
                    continue
            which = node & mask
            begin = which * SET_BYTES
            wanted, end = node.to_bytes(8, byteorder), begin + NODES_BYTES
            at = find(wanted, begin, end)
            while at >= 0:
                if not at & 7:
                    k = at - begin >> 3
                    number = holders[HOLDER_STEP * which + k]
                    more = number & MORE
                    number -= more
                    if epochs[EPOCH_STEP * which + k] >= floors[number] and number not in found:
                        found[number] = ends[i]
                    if not more:
                        break
                at = find(wanted, at + 1, end)
            if found:
                step, few = 0, ALONE
                if len(found) >= most:
                    break
        return found, shared

    def epoch_of(self, number: int, node: int) -> int:
        """Returns the epoch in which a holder last used a node, 0 if it never did."""
        many = self._shared.get(node)
        if many is not None:
            return many.get(number, 0)
        which = node & self._mask
        for k in self._slots(which, node):
            if self._holders[HOLDER_STEP * which + k] & ~MORE == number:
                return self._epochs[EPOCH_STEP * which + k]
        return 0

    def last_use(self, number: int, chain: PrefixChain) -> tuple[int, int]:
        """Returns the tokens that a holder has of a prompt, and the epoch in which it last used the last of them."""
        floor = self.floors[number]
        for i in range(len(chain.nodes) - 1, -1, -1):
            epoch = self.epoch_of(number, chain.nodes[i])
            if epoch >= floor:
                return chain.ends[i], epoch
        return 0, 0

    def hold(self, number: int, nodes: tuple[int, ...], tokens: tuple[int, ...]) -> None:
        """Records that a holder uses the nodes now, of which each adds so many tokens to the one before it. The end of
        a prompt counts as used before its beginning, as in vLLM and SGLang."""
        holder = self.holders[number]
        for i in range(len(nodes) - 1, -1, -1):
            self._use(number, holder, nodes[i], tokens[i])

    def _use(self, number: int, holder: Holder, node: int, tokens: int) -> None:
        many = self._shared.get(node)
        if many is not None:
            self._pairs += number not in many
            many[number] = holder.use(many.get(number, 0), tokens)
            self._shared.move_to_end(node)
            self._bound()
            return
        which = node & self._mask
        holders, epochs, p, e = self._holders, self._epochs, HOLDER_STEP * which, EPOCH_STEP * which
        same = self._slots(which, node)
        for k in same:
            if holders[p + k] & ~MORE == number:
                epochs[e + k] = holder.use(epochs[e + k], tokens)
                return
        dead = [k for k in same if epochs[e + k] < self.floors[holders[p + k] & ~MORE]]
        if len(same) - len(dead) >= FEW:
            held = {holders[p + k] & ~MORE: epochs[e + k] for k in same if k not in dead}
            for k in same:
                if k not in dead:
                    self._put(which, k, 0)
            held[number] = holder.use(0, tokens)
            self._shared[node] = held
            self._pairs += len(held)
            self._count(node, SHARED)
            self._bound()
            return
        if dead:
            slot = dead[0]
        else:
            slot = self._turns[which]
            self._turns[which] = (slot + 1) % WAYS
        self._put(which, slot, node)
        more = MORE if [k for k in same if k != slot] else 0
        for k in same:
            holders[p + k] |= more
        holders[p + slot], epochs[e + slot] = number | more, holder.use(0, tokens)

    def _slots(self, which: int, node: int) -> list[int]:
        """Returns the slots of its set in which a node stands."""
        if not self._filter[node & self._filter_mask]:
            return []
        row = self._nodes[NODE_STEP * which : NODE_STEP * which + WAYS].tolist()
        return [k for k, each in enumerate(row) if each == node] if node in row else []

    def _put(self, which: int, slot: int, node: int) -> None:
        """Writes a node, or 0 for none, over what stands in a slot."""
        at = NODE_STEP * which + slot
        before, self._nodes[at] = self._nodes[at], node
        self._count(before, -ALONE)
        self._count(node, ALONE)

    def _count(self, node: int, change: int) -> None:
        """Counts in the filter that a node came or left. What is full stays so: not all in it was counted."""
        at = node & self._filter_mask
        if node and self._filter[at] < FULL:
            self._filter[at] = min(FULL, self._filter[at] + change)

    def _bound(self) -> None:
        """Forgets nodes that many hold, those used longest ago, where there are too many."""
        while len(self._shared) > self._max_shared or (self._pairs > self._max_pairs and len(self._shared) > 1):
            node, many = self._shared.popitem(last=False)
            self._pairs -= len(many)
            self._count(node, -SHARED)
