"""Which worker probably holds which beginnings of prompts, by what was sent to it.

A table of fixed size maps the nodes of `PrefixChain` to places, of which each worker has one. A place is taken to keep
what was used last, up to its engines' KV memory: its tokens are counted by epoch of last use, and the oldest epochs are
dropped when the sum exceeds the memory. A node is held while its epoch is. Nodes that many places hold, such as a
system prompt's, stand in a small table of their own.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable
from sys import byteorder

from hmas.contracts.job import PrefixChain

WAYS = 8  # slots in which a node may stand; of a full set the slot that was written longest ago is overwritten
FEW = 4  # places by which a node stands in the large table; with more it moves to the small one
EPOCHS = 64  # into which the tokens of a place are divided
SLOT_BYTES = 16
SET_BYTES = 8 * WAYS  # of the nodes of a set
MAX_PLACES = 0xFFFF


class Place:
    """What one place holds. `capacity` is in tokens; `trust` follows the share of what was promised that was there."""

    __slots__ = ("_buckets", "_inflow", "capacity", "epoch", "floor", "tokens", "trust")

    def __init__(self, epoch: int, capacity: int) -> None:
        self.capacity = capacity
        self.trust = 1.0
        self.clear(epoch)

    def clear(self, epoch: int) -> None:
        """Forgets all that was used before the epoch."""
        self.epoch = self.floor = epoch
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
            self.floor += 1


class PrefixIndex:
    """The table. It holds at most `max_nodes` pairs of a node and a place, in `SLOT_BYTES` bytes each and as much again
    that stays free; `max_shared` bounds the nodes that many places hold."""

    def __init__(self, max_nodes: int, max_shared: int = 4_096) -> None:
        sets = 1 << max(0, (2 * max_nodes // WAYS - 1).bit_length())
        self._mask = sets - 1
        self._raw = bytearray(8 * WAYS * sets)  # the nodes, in which bytes are found faster than numbers
        self._keys = memoryview(self._raw).cast("Q")
        self._places = array("H", bytes(2 * WAYS * sets))
        self._epochs = array("I", bytes(4 * WAYS * sets))
        self._turns = bytearray(sets)  # the slot of each set that is overwritten next
        self._shared: OrderedDict[int, dict[int, int]] = OrderedDict()  # epoch of last use by place, by node
        self._max_shared = max_shared
        self.places: dict[int, Place] = {}  # by number
        self._free: list[tuple[int, int]] = []  # numbers of places that left, with the epoch from which they are free

    @property
    def bytes(self) -> int:
        """The memory of the large table."""
        parts = (self._keys, self._places, self._epochs)
        return len(self._turns) + sum(len(part) * part.itemsize for part in parts)

    def enter(self, capacity: int) -> int:
        """Returns the number of a new place that holds up to `capacity` tokens, of at most `MAX_PLACES`."""
        number, epoch = self._free.pop() if self._free else (len(self.places), 1)
        self.places[number] = Place(epoch, capacity)
        return number

    def leave(self, number: int) -> None:
        self._free.append((number, self.places.pop(number).epoch + 1))

    def held(self, chain: PrefixChain, most: int) -> tuple[dict[int, int], list[tuple[int, dict[int, int]]]]:
        """Returns who holds how much of a prompt: tokens by place, for at most about `most` places, those with the most
        first; and for its nodes that many places hold, the deepest first, the tokens and the epochs by place. Below the
        deepest node that is found, only every node at half the depth of the last is looked up."""
        found: dict[int, int] = {}
        shared: list[tuple[int, dict[int, int]]] = []
        find, places, epochs, of, many_of = self._raw.find, self._places, self._epochs, self.places, self._shared.get
        nodes, ends, mask = chain.nodes, chain.ends, self._mask
        i, step = len(nodes), 1
        while i > 0:
            i = i - 1 if step else i // 2
            node = nodes[i]
            many = many_of(node)
            if many is not None:
                shared.append((ends[i], many))
                step = 0
                continue
            begin = (node & mask) * SET_BYTES
            wanted, end = node.to_bytes(8, byteorder), begin + SET_BYTES
            at = find(wanted, begin, end)
            while at >= 0:
                number = places[at >> 3]
                if number not in found and not at & 7:
                    place = of.get(number)
                    if place is not None and epochs[at >> 3] >= place.floor:
                        found[number] = ends[i]
                at = find(wanted, at + 1, end)
            if found:
                step = 0
                if len(found) >= most:
                    break
        return found, shared

    def tokens_at(self, number: int, shared: Iterable[tuple[int, dict[int, int]]]) -> int:
        """Returns the tokens that a place holds by the nodes that many places hold."""
        floor = self.places[number].floor
        for tokens, epochs in shared:
            if epochs.get(number, 0) >= floor:
                return tokens
        return 0

    def epoch_of(self, number: int, node: int) -> int:
        """Returns the epoch in which a place last used a node, 0 if it never did."""
        many = self._shared.get(node)
        if many is not None:
            return many.get(number, 0)
        begin = (node & self._mask) * WAYS
        row, k = self._keys[begin : begin + WAYS].tolist(), -1
        for _ in range(row.count(node)):
            k = row.index(node, k + 1)
            if self._places[begin + k] == number:
                return self._epochs[begin + k]
        return 0

    def last_use(self, number: int, chain: PrefixChain) -> tuple[int, int]:
        """Returns the tokens that a place holds of a prompt, and the epoch in which it last used the last of them."""
        floor = self.places[number].floor
        for i in range(len(chain.nodes) - 1, -1, -1):
            epoch = self.epoch_of(number, chain.nodes[i])
            if epoch >= floor:
                return chain.ends[i], epoch
        return 0, 0

    def hold(self, number: int, nodes: tuple[int, ...], tokens: tuple[int, ...]) -> None:
        """Records that a place uses the nodes now, of which each adds so many tokens to the one before it. The end of a
        prompt counts as used before its beginning, as in vLLM and SGLang."""
        place = self.places[number]
        for i in range(len(nodes) - 1, -1, -1):
            self._use(number, place, nodes[i], tokens[i])

    def _use(self, number: int, place: Place, node: int, tokens: int) -> None:
        many = self._shared.get(node)
        if many is not None:
            many[number] = place.use(many.get(number, 0), tokens)
            self._shared.move_to_end(node)
            return
        keys, places, epochs = self._keys, self._places, self._epochs
        which = node & self._mask
        begin = which * WAYS
        row = keys[begin : begin + WAYS].tolist()
        same = [k for k in range(begin, begin + WAYS) if row[k - begin] == node] if node in row else []
        for k in same:
            if places[k] == number:
                epochs[k] = place.use(epochs[k], tokens)
                return
        dead = [k for k in same if places[k] not in self.places or epochs[k] < self.places[places[k]].floor]
        if len(same) - len(dead) >= FEW:
            self._share(node, [k for k in same if k not in dead])
            self._shared[node][number] = place.use(0, tokens)
            return
        if dead:
            slot = dead[0]
        else:
            slot = begin + self._turns[which] % WAYS
            self._turns[which] = (self._turns[which] + 1) % WAYS
        keys[slot], places[slot], epochs[slot] = node, number, place.use(0, tokens)

    def _share(self, node: int, slots: list[int]) -> None:
        """Moves a node to the table of those that many places hold."""
        self._shared[node] = {self._places[k]: self._epochs[k] for k in slots}
        for k in slots:
            self._keys[k] = 0
        if len(self._shared) > self._max_shared:
            self._shared.popitem(last=False)
