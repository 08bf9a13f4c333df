"""How much prefill may be pending beside what decodes, and which part of a first token's wait is a prompt's own."""

import pytest

from hmas.contracts.request import Slo
from hmas.worker.agent.config import PrefillBacklogConfig, PrefillWindowConfig
from hmas.worker.agent.engines.prefill_backlog import PrefillBacklog
from hmas.worker.agent.engines.prefill_window import PrefillWindow
from hmas.worker.agent.entry.entry import STEP_TOKENS, QueueEntry
from tests.worker.builders import annotation, entry, request

CONFIG = PrefillWindowConfig()
BARE_S = 0.02


def decoding(seq: int, tpot_s: float, *, tokens: float = 101.0, first_s: float = 0.0) -> QueueEntry:
    """A request whose first token came at `first_s`, and which has `tokens` in all to produce."""
    made = entry(seq, request(f"r{seq}"))
    made.annotate(annotation(tokens, ttft_s=0.1, tpot_s=0.02, slo=Slo(5.0, tpot_s)))
    made.first_token_s, made.output_tokens = first_s, 1
    return made


def window() -> PrefillWindow:
    made = PrefillWindow(CONFIG)
    for step_s in (0.07, BARE_S, 0.09):
        made.see_step(0.0, step_s)
    return made


def test_a_step_may_take_what_the_budgets_leave() -> None:
    assert window().seconds(0.0, [decoding(i, 0.1) for i in range(5)]) == pytest.approx(0.1 - BARE_S)


def test_what_went_well_so_far_gives_room_and_what_went_badly_takes_it() -> None:
    ahead, behind = decoding(1, 0.1), decoding(1, 0.1)
    ahead.output_tokens, behind.output_tokens = 51, 31
    assert window().seconds(4.0, [ahead]) == pytest.approx((10.0 - 4.0) / 50 - BARE_S)
    assert window().seconds(4.0, [behind]) == pytest.approx((10.0 - 4.0) / 70 - BARE_S)


def test_the_tightest_are_given_up_and_the_lost_do_not_count() -> None:
    few = [decoding(i, 0.06) for i in range(3)] + [decoding(9 + i, 0.12) for i in range(7)]
    many = [decoding(i, 0.08) for i in range(7)] + [decoding(9 + i, 0.12) for i in range(3)]
    lost = [decoding(20 + i, 0.01) for i in range(20)]
    assert window().seconds(0.0, few + lost) == pytest.approx(0.12 - BARE_S)
    assert window().seconds(0.0, many + lost) == pytest.approx(0.08 - BARE_S)


def test_it_stays_within_its_bounds() -> None:
    assert window().seconds(0.0, []) == CONFIG.most_s
    assert window().seconds(0.0, [decoding(1, 9.0)]) == CONFIG.most_s
    assert window().seconds(0.0, [decoding(1, BARE_S + 0.001)]) == CONFIG.least_s


def test_an_engine_that_keeps_the_paces_itself_needs_no_other_window() -> None:
    made = window()
    made.paced = True
    assert made.seconds(0.0, [decoding(1, 0.06)]) == CONFIG.paced_s


def granted(backlog: PrefillBacklog, seq: int, prompt_tokens: int, now_s: float) -> QueueEntry:
    made = entry(seq, request(f"p{seq}", prompt_tokens=prompt_tokens))
    made.granted_s = now_s
    backlog.add(now_s, made, 0.01)
    return made


def test_of_prompts_that_are_computed_side_by_side_each_waits_for_the_others() -> None:
    backlog = PrefillBacklog(PrefillBacklogConfig())
    first, second = granted(backlog, 1, 1_000, 0.0), granted(backlog, 2, 500, 0.0)
    backlog.remove(0.2, first, computed=True)
    backlog.remove(0.2, second, computed=True)
    assert first.engine_wait_s(0.2) == 0.0
    assert second.engine_wait_s(0.2) == pytest.approx(0.2 * 1_000 / (1_500 + STEP_TOKENS))


def test_what_an_engine_computed_of_later_prompts_is_no_part_of_a_prompts_own() -> None:
    """An engine that orders by urgency takes them first."""
    backlog = PrefillBacklog(PrefillBacklogConfig())
    patient = granted(backlog, 1, 300, 0.0)
    for i in range(2, 12):
        backlog.remove(0.1 * i, granted(backlog, i, 1_000, 0.1 * i), computed=True)
    backlog.remove(1.2, patient, computed=True)
    assert patient.engine_wait_s(1.2) == pytest.approx(1.2 * 10_000 / (10_300 + STEP_TOKENS))


def test_the_part_of_others_does_not_depend_on_predictions() -> None:
    """Or a prediction learnt from it would feed itself."""
    waits = []
    for predicted_s in (0.001, 1.0):
        backlog = PrefillBacklog(PrefillBacklogConfig())
        first, second = granted(backlog, 1, 400, 0.0), granted(backlog, 2, 400, 0.0)
        first.prefill_s = second.prefill_s = first.pending_s = second.pending_s = predicted_s
        backlog.remove(0.1, first, computed=True)
        backlog.remove(0.1, second, computed=True)
        waits.append(second.engine_wait_s(0.1))
    assert waits[0] == waits[1] > 0.0


def test_the_backlog_tells_how_late_first_tokens_come() -> None:
    backlog = PrefillBacklog(PrefillBacklogConfig(wait_smoothing=1.0))
    late = granted(backlog, 1, 400, 1.0)
    late.prefill_s = 0.1
    backlog.remove(1.5, late, computed=True)
    assert backlog.wait_s == pytest.approx(0.4)
    stalled = granted(backlog, 2, 400, 2.0)
    backlog.remove(302.0, stalled, computed=True)
    assert backlog.wait_s == 2.0


def running(first_s: float | None, done: int, left: int, *, pace_s: float = 0.25, whole: bool = False) -> QueueEntry:
    made = entry(
        1, request("r1", slo=Slo(4.0, pace_s, 99.0 if whole else None, whole=whole)), tokens=float(done + left)
    )
    made.first_token_s, made.output_tokens = first_s, done
    return made


def test_the_window_is_what_the_running_can_spare_beyond_a_bare_step() -> None:
    window = PrefillWindow(PrefillWindowConfig(least_s=0.0625, most_s=2.0, given_up=0.5, kept_s=0.5, paced_s=0.125))
    assert window.seconds(0.0, []) == 2.0
    window.see_step(0.0, 0.25)
    window.see_step(0.0, 0.0)
    # due at 10 + 16 * 0.25 with the last of 17 tokens: 8 are left, of which each may take (14 - now) / 8
    ahead, tight = running(10.0, 9, 8), running(10.0, 9, 8, pace_s=0.125)
    assert window.seconds(8.0, [ahead]) == (14.0 - 8.0) / 8 - 0.25
    assert window.seconds(8.25, []) == 0.5, "it is used for a while"
    assert window.seconds(8.5, [running(None, 0, 8), running(10.0, 9, 8, whole=True)]) == 2.0
    assert window.seconds(9.0, [ahead, tight]) == (14.0 - 9.0) / 8 - 0.25, "those with the tightest are given up"
    assert window.seconds(11.5, [ahead]) == 0.0625
    assert window.seconds(12.0, [ahead]) == 2.0, "one that cannot keep its pace has none to keep"
    window.paced = True
    assert window.seconds(12.0, [ahead]) == 0.125
