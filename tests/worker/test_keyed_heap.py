"""A heap whose items may leave and move."""

from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap
from tests.worker.builders import entry


def test_heap_sheds_what_was_removed_or_moved() -> None:
    heap: KeyedHeap[QueueEntry] = KeyedHeap()
    kept, *others = [entry(i) for i in range(1, 500)]
    for each in (kept, *others):
        heap.push(float(each.seq), each)
    for each in others:
        heap.remove(each)
    for i in range(1000):
        heap.rekey(1000.0 - i, kept)
    assert len(heap) == 1
    assert len(heap._items) <= 2 * 1 + 65
    assert heap.pop() == (1.0, kept)
    assert heap.pop() is None
