"""Moore-Hodgson against brute force."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.moore_hodgson import to_give_up
from hmas.worker.agent.order.deadline_order import DeadlineOrder
from hmas.worker.agent.order.planned_work import PlannedWork
from tests.worker.builders import entry

jobs = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30)), min_size=1, max_size=9)


def in_time(chosen: list[tuple[int, int]]) -> bool:
    """(work, due) each, by due date on one server of rate 1."""
    done = 0
    for work, due in sorted(chosen, key=lambda job: job[1]):
        done += work
        if done > due:
            return False
    return True


def best(offered: list[tuple[int, int]]) -> tuple[int, int]:
    """Most jobs in time, and the least work of as many."""
    for size in range(len(offered), 0, -1):
        works = [sum(w for w, _ in s) for s in combinations(offered, size) if in_time(list(s))]
        if works:
            return size, min(works)
    return 0, 0


@given(jobs)
def test_the_fewest_are_given_up_and_the_rest_is_in_time(offered: list[tuple[int, int]]) -> None:
    given_up = to_give_up((job_of(*row) for row in sorted(enumerate(offered), key=lambda row: row[1][1])), 0.0, 1.0)
    lost = {job.entry.seq for job in given_up}
    kept = [row for seq, row in enumerate(offered) if seq not in lost]
    assert in_time(kept)
    assert (len(kept), sum(work for work, _ in kept)) == best(offered)


@given(jobs)
def test_the_order_keeps_as_many_as_any_choice_could(offered: list[tuple[int, int]]) -> None:
    """Offered all at once; repaired after each in any order, what is kept is in time, if not always the most."""
    order = DeadlineOrder()
    order.refill(job_of(seq, row) for seq, row in enumerate(offered))
    kept = repaired(order, offered)
    assert in_time(kept)
    assert (len(kept), sum(work for work, _ in kept)) == best(offered)
    order = DeadlineOrder()
    for seq, row in enumerate(offered):
        order.add(job_of(seq, row))
        assert in_time(repaired(order, offered))


@given(jobs)
def test_one_walk_gives_up_what_one_by_one_does(offered: list[tuple[int, int]]) -> None:
    order = DeadlineOrder()
    order.refill(job_of(seq, row) for seq, row in enumerate(offered))
    given_up = order.give_up(0.0, 1.0, len(offered))
    one_by_one = DeadlineOrder()
    one_by_one.refill(job_of(seq, row) for seq, row in enumerate(offered))
    repaired(one_by_one, offered)
    assert {job.entry.seq for job in order} == {job.entry.seq for job in one_by_one}
    assert sorted([*(j.entry.seq for j in order), *(j.entry.seq for j in given_up)]) == list(range(len(offered)))
    assert order.sacrifice(0.0, 1.0) is None


def job_of(seq: int, row: tuple[int, int]) -> PlannedWork:
    return PlannedWork(entry(seq), float(row[1]), float(row[1]), float(row[0]), float(row[0]))


def repaired(order: DeadlineOrder, offered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left once nothing is late."""
    while (job := order.sacrifice(0.0, 1.0)) is not None:
        order.remove(job.entry)
    return [offered[job.entry.seq] for job in order]
