"""An attempt's states: the whole table, and what an illegal step leaves as it was."""

from itertools import product

import pytest

from hmas.laws.transitions import IllegalTransition
from hmas.worker.agent.entry.entry import TRANSITIONS, EntryState, QueueEntry
from hmas.worker.agent.order.queue import RequestQueue
from tests.worker.builders import entry

LEGAL = {
    (EntryState.PARKED, EntryState.QUEUED),
    (EntryState.PARKED, EntryState.RUNNING),
    (EntryState.PARKED, EntryState.ENDED),
    (EntryState.QUEUED, EntryState.PARKED),
    (EntryState.QUEUED, EntryState.RUNNING),
    (EntryState.QUEUED, EntryState.ENDED),
    (EntryState.RUNNING, EntryState.PARKED),
    (EntryState.RUNNING, EntryState.ENDED),
}


def contents(made: QueueEntry) -> dict[str, object]:
    return {name: getattr(made, name) for name in QueueEntry.__slots__}


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(EntryState)
    assert {(before, after) for before, follows in TRANSITIONS.items() for after in follows} == LEGAL


@pytest.mark.parametrize(("before", "after"), list(product(EntryState, EntryState)))
def test_an_illegal_step_raises_and_changes_nothing(before: EntryState, after: EntryState) -> None:
    made = entry(1)
    made.state = before
    was = contents(made)
    if (before, after) in LEGAL:
        made.enter(after)
        assert contents(made) == was | {"state": after}
    else:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            made.enter(after)
        assert contents(made) == was


def test_a_queue_refuses_what_an_entry_may_not_do_and_stays_as_it_was() -> None:
    queue = RequestQueue(9, 10**6)
    ended, waiting = entry(1), entry(2)
    for made in (ended, waiting):
        queue.add(made)
        queue.wake(made)
    queue.remove(ended)

    def books() -> tuple[object, ...]:
        return queue.waiting, queue.ready, queue.queued_tokens, queue.queued_s, queue.grants, queue.peek()

    was = books()
    for illegal, target in ((queue.remove, ended), (queue.wake, waiting), (queue.run, ended)):
        with pytest.raises(IllegalTransition):
            illegal(target)
        assert books() == was
    assert queue.queued() == [waiting]
