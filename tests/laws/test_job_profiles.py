"""What is forecast of jobs from those that ended."""

from statistics import median

from hmas.laws.job_profiles import DoneStage, JobProfiles, JobProfilesConfig

TEMPLATE, AGENT, OTHER = 7, 11, 12


def job(*outputs: int, agent: int = AGENT, outside_s: float = 0.0) -> list[DoneStage]:
    return [DoneStage(agent, 100, output, outside_s if i else 0.0) for i, output in enumerate(outputs)]


def test_table_gives_the_median_of_what_followed_the_stage() -> None:
    profiles = JobProfiles(JobProfilesConfig(table=True))
    rests = [10, 20, 30, 40, 500, 600, 700, 800, 900]
    for rest in rests:
        profiles.learn(TEMPLATE, job(5, rest, 1, outside_s=2.0))
    found = profiles.forecast(TEMPLATE, AGENT, 0, 100, 0)
    assert found is not None
    need = found.median
    assert (need.own_tokens, need.stages, need.prompt_tokens, need.outside_s) == (5, 2, 200, 4.0)
    assert need.output_tokens == median(rests) + 1


def test_a_rare_state_falls_back_to_its_template() -> None:
    profiles = JobProfiles(JobProfilesConfig(table=True, min_count=3))
    for _ in range(3):
        profiles.learn(TEMPLATE, job(5, 50))
    profiles.learn(TEMPLATE, job(5, 900, agent=OTHER))
    found = profiles.forecast(TEMPLATE, OTHER, 0, 100, 0)
    assert found is not None
    assert found.median.output_tokens == 50
    assert profiles.forecast(TEMPLATE + 1, AGENT, 0, 100, 0) is None


def test_records_that_resemble_the_stage_weigh_more() -> None:
    profiles = JobProfiles()
    for _ in range(40):
        profiles.learn(TEMPLATE, [DoneStage(AGENT, 100, 5, 0.0), DoneStage(AGENT, 100, 10, 0.0)])
        profiles.learn(TEMPLATE, [DoneStage(AGENT, 5000, 5, 0.0), DoneStage(AGENT, 100, 1000, 0.0)])
    short, long = (profiles.forecast(TEMPLATE, AGENT, 0, prompt, 0) for prompt in (100, 5000))
    assert short is not None
    assert long is not None
    assert (short.median.output_tokens, long.median.output_tokens) == (10, 1000)


def test_the_upper_quantile_covers_most_jobs() -> None:
    profiles = JobProfiles(JobProfilesConfig(table=True))
    for rest in range(1, 101):
        profiles.learn(TEMPLATE, job(5, rest))
    found = profiles.forecast(TEMPLATE, AGENT, 0, 100, 0)
    assert found is not None
    assert found.p90.output_tokens == 90


def test_states_and_records_are_bounded() -> None:
    profiles = JobProfiles(JobProfilesConfig(max_states=10, window=4))
    for template in range(100):
        for _ in range(20):
            profiles.learn(template, job(1, 2))
    assert len(profiles) == 10
    assert len(profiles.weighted(99, AGENT, 0, 100, 0)) <= 3 * 4
