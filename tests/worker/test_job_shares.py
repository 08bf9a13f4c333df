"""Which tenants' jobs got more service than others'."""

from hmas.worker.agent.order.job_shares import JobShares, JobSharesConfig

CONFIG = JobSharesConfig(lead_s=1.0, credit_s=5.0, silent_s=30.0, crowded_s=10.0)


def test_a_tenant_is_ahead_once_it_got_more_than_its_lead_while_jobs_are_given_up() -> None:
    shares = JobShares(CONFIG)
    shares.waits(0.0, "a")
    shares.served(0.0, "b", 1.0, 2.0)
    assert shares.refresh(0.0, 2.0, True) == frozenset()  # 2 s of work at a rate of 2: one second
    shares.served(1.0, "b", 1.0, 0.1)
    assert shares.refresh(1.0, 2.0, False) == {"b"}
    assert shares.ahead("b")
    assert not shares.ahead("a")
    assert shares.refresh(10.5, 2.0, False) == {"b"}  # nothing was given up for a while
    assert shares.leads("b")
    assert not shares.ahead("b")


def test_weights_count() -> None:
    shares = JobShares(CONFIG)
    shares.waits(0.0, "b")
    shares.served(0.0, "a", 1.0, 4.0)
    shares.served(0.0, "b", 3.0, 12.0)
    assert shares.refresh(0.0, 1.0, True) == frozenset()


def test_what_a_tenant_got_alone_is_not_held_against_it() -> None:
    shares = JobShares(CONFIG)
    shares.served(0.0, "old", 1.0, 1000.0)
    shares.waits(1.0, "new")
    assert shares.refresh(1.0, 1.0, True) == frozenset()
    shares.served(2.0, "new", 1.0, 1.5)
    assert shares.refresh(2.0, 1.0, True) == {"new"}


def test_nobody_saves_up_more_than_the_credit() -> None:
    shares = JobShares(CONFIG)
    shares.waits(0.0, "idle")
    shares.served(0.0, "busy", 1.0, 100.0)
    shares.refresh(0.0, 1.0, True)
    shares.served(1.0, "idle", 1.0, 4.5)
    assert shares.refresh(1.0, 1.0, True) == {"busy"}  # 4.5 s of 5 are used up
    assert not shares.ahead("idle")
    shares.served(2.0, "idle", 1.0, 2.0)
    assert shares.refresh(2.0, 1.0, True) == {"idle"}


def test_the_table_is_bounded_and_forgets_the_silent() -> None:
    shares = JobShares(JobSharesConfig(max_tenants=3))
    for number in range(100_000):
        shares.waits(0.0, f"t{number}")
    assert len(shares) == 3
    shares.waits(100.0, "x")
    shares.refresh(100.0, 1.0, False)
    assert len(shares) == 1


def test_a_tenants_level_is_its_work_over_its_weight() -> None:
    shares = JobShares(JobSharesConfig(lead_s=1.0, credit_s=4.0, silent_s=30.0, crowded_s=10.0, max_tenants=3))
    shares.served(0.0, "a", 2.0, 12.0)
    assert shares.refresh(0.0, 2.0, crowded=True) == frozenset(), "alone nobody is ahead"
    shares.served(0.0, "b", 1.0, 2.0)  # it starts where the least one is
    assert shares._levels == {"a": 6.0, "b": 8.0}
    assert shares.refresh(0.0, 2.0, crowded=False) == frozenset()
    assert not shares.leads("b"), "a lead of exactly `lead_s` of all work is none"
    shares.served(1.0, "b", 1.0, 0.5)
    assert shares.refresh(1.0, 2.0, crowded=False) == {"b"}
    assert shares.leads("b")
    assert shares.ahead("b"), "something was given up within the last seconds"
    assert shares.refresh(9.75, 2.0, crowded=False) == frozenset()
    assert shares.refresh(10.0, 2.0, crowded=False) == {"b"}
    assert shares.leads("b")
    assert not shares.ahead("b")
    shares.served(11.0, "b", 1.0, 10.0)
    shares.refresh(11.0, 2.0, crowded=False)
    assert shares._levels == {"b": 18.5, "a": 10.5}, "nobody falls further than the credit behind"
    shares.refresh(30.0, 2.0, crowded=False)
    assert len(shares) == 2
    shares.refresh(30.25, 2.0, crowded=False)
    assert len(shares) == 1, "who is silent for longer is forgotten"
    for tenant in "cde":
        shares.waits(31.0, tenant)
    assert set(shares._levels) == {"c", "d", "e"}
    assert shares._levels["e"] == 18.5
