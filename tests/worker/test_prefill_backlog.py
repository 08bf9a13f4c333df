"""The prefill that is pending on an engine, and the pace at which it is computed."""

from hmas.worker.agent.config import (
    PrefillBacklogConfig,
)
from hmas.worker.agent.engines.prefill_backlog import PrefillBacklog
from tests.worker.builders import entry, request


def test_the_pace_of_prefill_is_what_was_computed_while_prompts_were_pending() -> None:
    config = PrefillBacklogConfig(measure_s=1.0, smoothing=0.5, wait_smoothing=0.25, most_wait_s=2.0)
    backlog = PrefillBacklog(config)
    first, second, third = (entry(i, request(f"r{i}", prompt_tokens=1000 * i)) for i in (1, 2, 3))
    for each in (first, second, third):
        each.granted_s = 10.0
    assert backlog.admits(99.0, 0.1), "an empty one takes any prompt"
    backlog.add(10.0, first, 1.0)
    backlog.add(10.0, second, 2.0)
    assert backlog.seconds == 3.0
    assert backlog.admits(1.0, 4.0)
    assert not backlog.admits(1.25, 4.0)
    backlog.remove(10.5, first, computed=True)  # half a second is no measurement yet
    assert (backlog.pace, backlog.seconds) == (1.0, 2.0)
    assert backlog.wait_s == 0.0, "it came before its prefill was expected to end"
    backlog.remove(10.75, first, computed=True)  # it has left before
    backlog.remove(16.0, second, computed=True)  # 3 s in 6 s
    assert backlog.pace == 1.0 + 0.5 * (3.0 / 6.0 - 1.0)
    assert backlog.wait_s == 0.25 * 2.0, "at most `most_wait_s`"
    assert (backlog.seconds, bool(backlog)) == (0.0, False)
    backlog.add(100.0, third, 4.0)  # the time between counts for nothing
    third.granted_s = 100.0
    backlog.remove(102.0, third, computed=False)
    assert backlog.pace == 0.75 + 0.5 * (0.0 - 0.75)
    assert backlog.wait_s == 0.5
    assert second.others_tokens == first.computed_tokens == 1000


def test_the_pace_widens_what_may_be_pending_and_never_narrows_it() -> None:
    backlog = PrefillBacklog(PrefillBacklogConfig())
    backlog.add(0.0, entry(1), 1.0)
    backlog.pace = 2.0
    assert backlog.admits(1.0, 1.0)
    assert not backlog.admits(1.0625, 1.0)
    backlog.pace = 0.5
    assert backlog.admits(1.0, 2.0)
    assert not backlog.admits(1.0, 1.9375)
