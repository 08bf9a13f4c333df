"""Plans as desired state: which engines all pools should run, and how the controller gets there.

Heartbeats say what is, the plan in force what should be, and the steps between the two are worked out anew at each look
(`hmas.laws.plan_steps`).

Invariants:
- A step that was lost, a restart, and an operator's change of replicas need no repair: the steps lead to the plan, and
  what is ordered never exceeds the budget.
  [tests/meta/test_plan_convergence.py::test_the_engines_become_those_of_the_plan_whatever_happens_on_the_way]
- Nothing that runs is aborted: fewer engines are ordered one decision at a time, and no card is promised to another
  while an engine that drains holds it.
  [tests/meta/test_plan_convergence.py::test_no_card_is_promised_twice_while_engines_drain]
- One irreversible step is under way at a time, and none where the gate says no.
  [tests/meta/test_plan_gate.py::test_a_step_is_held_back]
- Without a catalogue there is nothing of all this.
  [tests/meta/test_meta_plans.py::test_without_a_catalogue_there_are_no_plans]
"""
