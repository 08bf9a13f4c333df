"""What is forecast of jobs from those that ended."""

from statistics import median

from hmas.laws.job_profiles import DoneStage, JobProfiles, JobProfilesConfig, Need

TEMPLATE, AGENT, OTHER = 7, 11, 12


def job(*outputs: int, agent: int = AGENT, outside_s: float = 0.0) -> list[DoneStage]:
    return [DoneStage(agent, 100, output, outside_s if i else 0.0) for i, output in enumerate(outputs)]


def test_table_gives_the_median_of_what_followed_the_stage() -> None:
    profiles = JobProfiles()
    rests = [10, 20, 30, 40, 500, 600, 700, 800, 900]
    for rest in rests:
        profiles.learn(TEMPLATE, job(5, rest, 1, outside_s=2.0))
    found = profiles.forecast(TEMPLATE, AGENT, 0)
    assert found is not None
    need = found.median
    assert (need.own_tokens, need.stages, need.prompt_tokens, need.outside_s) == (5, 2, 200, 4.0)
    assert need.output_tokens == median(rests) + 1


def test_a_rare_state_falls_back_to_its_template() -> None:
    profiles = JobProfiles(JobProfilesConfig(min_count=3))
    for _ in range(3):
        profiles.learn(TEMPLATE, job(5, 50))
    profiles.learn(TEMPLATE, job(5, 900, agent=OTHER))
    found = profiles.forecast(TEMPLATE, OTHER, 0)
    assert found is not None
    assert found.median.output_tokens == 50
    assert profiles.forecast(TEMPLATE + 1, AGENT, 0) is None


def test_the_upper_quantile_covers_most_jobs() -> None:
    profiles = JobProfiles()
    for rest in range(1, 101):
        profiles.learn(TEMPLATE, job(5, rest))
    found = profiles.forecast(TEMPLATE, AGENT, 0)
    assert found is not None
    assert found.p90.output_tokens == 90


def test_states_and_records_are_bounded() -> None:
    profiles = JobProfiles(JobProfilesConfig(max_states=10, window=4))
    for template in range(100):
        for _ in range(20):
            profiles.learn(template, job(1, 2))
    assert len(profiles) == 10
    assert len(profiles.records(99, AGENT, 0)) == 4


def test_a_record_says_what_the_job_needed_after_each_of_its_stages() -> None:
    profiles = JobProfiles(JobProfilesConfig(min_count=1))
    profiles.learn(
        TEMPLATE, [DoneStage(AGENT, 10, 1, 0.0), DoneStage(OTHER, 20, 2, 0.5), DoneStage(AGENT, 40, 4, 0.25)]
    )
    found = [profiles.records(TEMPLATE, agent, index)[0] for index, agent in enumerate((AGENT, OTHER, AGENT))]
    assert list(found) == [
        Need(1, 2, 60, 6, 60, 6, 0.75), Need(2, 1, 40, 4, 40, 4, 0.25), Need(4, 0, 0, 0, 0, 0, 0.0),
    ]  # fmt: skip


def ways(*stages: DoneStage, **changes: float) -> list[Need]:
    """What was recorded after each stage; every stage's state is its own."""
    profiles = JobProfiles(JobProfilesConfig(min_count=1, **changes))  # type: ignore[arg-type]
    profiles.learn(TEMPLATE, [stage._replace(agent=index) for index, stage in enumerate(stages)])
    return [profiles.records(TEMPLATE, index, index)[0] for index in range(len(stages))]


def way(need: Need) -> tuple[float, float, float]:
    return need.way_prompt_tokens, need.way_output_tokens, need.outside_s


def test_the_longest_way_goes_through_the_slower_of_two_that_run_side_by_side() -> None:
    """Stages 1 and 2 wait for stage 0, stage 3 for stage 1 and stage 4 for none."""
    fan = (
        DoneStage(0, 10, 1, 0.0), DoneStage(0, 100, 5, 0.5, 0), DoneStage(0, 200, 50, 0.25, 0),
        DoneStage(0, 400, 20, 0.125, 1), DoneStage(0, 800, 999, 9.0, -1),
    )  # fmt: skip
    found = ways(*fan)
    assert [way(each) for each in found] == [(200, 50, 0.25), (400, 20, 0.125), (0, 0, 0.0), (0, 0, 0.0), (0, 0, 0.0)]
    assert [(each.stages, each.prompt_tokens, each.output_tokens) for each in found] == [
        (4, 1500, 1074), (3, 1400, 1069), (2, 1200, 1019), (1, 800, 999), (0, 0, 0),
    ]  # fmt: skip
    assert way(ways(*fan, output_s=0.0)[0]) == (500, 25, 0.625)  # then only prompts and pauses count
    assert way(ways(*fan, output_s=1e-4, prompt_s=1e-9)[0]) == (500, 25, 0.625)  # the pauses decide


def test_of_ways_that_are_as_long_the_later_stage_is_told() -> None:
    same = DoneStage(0, 100, 10, 0.5, 0)
    assert way(ways(DoneStage(0, 1, 1, 0.0), same, same)[0]) == (100, 10, 0.5)


def test_a_stage_that_waits_for_itself_or_a_later_one_is_on_no_way() -> None:
    found = ways(DoneStage(0, 1, 1, 0.0), DoneStage(0, 2, 2, 0.5, 1), DoneStage(0, 4, 4, 0.5, 7))
    assert [way(each) for each in found] == [(0, 0, 0.0)] * 3
    chain = ways(DoneStage(0, 1, 1, 0.0), DoneStage(0, 2, 2, 0.5), DoneStage(0, 4, 4, 0.25))
    assert [way(each) for each in chain] == [(6, 6, 0.75), (4, 4, 0.25), (0, 0, 0.0)]


def test_a_forecast_takes_the_finest_state_with_enough_records_or_else_the_coarsest() -> None:
    profiles = JobProfiles(JobProfilesConfig(min_count=3))
    profiles.learn(TEMPLATE, job(5, 50))
    profiles.learn(TEMPLATE, job(5, 50, agent=OTHER))

    def count(agent: int, index: int) -> int:
        return len(profiles.records(TEMPLATE, agent, index))

    assert count(AGENT, 0) == 4  # one of the agent, two of the place, four of the template
    profiles.learn(TEMPLATE, job(5, 50))
    assert (count(AGENT, 0), count(AGENT, 9)) == (3, 6)
    profiles.learn(TEMPLATE, job(5, 50))
    assert (count(AGENT, 0), count(OTHER, 0)) == (3, 4)


def test_the_state_that_learnt_nothing_for_longest_is_forgotten() -> None:
    profiles = JobProfiles(JobProfilesConfig(max_states=6))
    for template in (1, 2, 1, 3):  # each has three states
        profiles.learn(template, job(5))
    assert len(profiles) == 6
    assert [bool(profiles.forecast(template, AGENT, 0)) for template in (1, 2, 3)] == [True, False, True]


def test_quantiles_are_the_least_values_that_so_much_of_the_weight_does_not_exceed() -> None:
    profiles = JobProfiles(JobProfilesConfig(min_count=1))
    for rest in range(1, 11):
        profiles.learn(TEMPLATE, job(rest))
    found = profiles.forecast(TEMPLATE, AGENT, 0)
    assert found is not None
    assert (found.low.own_tokens, found.median.own_tokens, found.p90.own_tokens) == (2, 5, 9)
