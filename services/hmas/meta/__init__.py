"""The meta controller, which decides the topology of each pool (H-MAS §3.4.1, App. C).

Invariants:
- An operator's pin outranks the emergency bypass, which outranks rollback, which outranks the selector.
  [tests/meta/test_meta_agent.py::test_a_pin_outranks_selector_bypass_and_rollback]
  [tests/meta/test_meta_agent.py::test_bypass_overrides_the_selector_and_the_last_good_choice_returns]
- A selector only proposes. A proposal that is malformed, late, banned or within the dwell is rejected and audited;
  where a language model gave no usable answer, the rules decide instead.
  [tests/meta/test_meta_agent.py::test_a_bad_answer_is_rejected_audited_and_the_rules_decide]
  [tests/meta/test_meta_agent.py::test_rollback_restores_the_last_stable_topology_and_bans_the_other]
- Nothing waits for a selector: meanwhile the last good topology stays in force and is repeated.
  [tests/meta/test_meta_agent.py::test_at_the_time_out_the_rules_decide_and_the_late_answer_is_ignored]
- Each decision leaves one audit record with the view that it was taken on.
  [tests/meta/test_meta_agent.py::test_rules_decide_every_period_and_each_decision_is_audited_with_its_view]
"""
