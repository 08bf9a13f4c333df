"""The arbiter of a GPU host: which of the models that share a card are awake, by the deadlines of those who wait.

- The engines of a card never take more than it has, moves included.
  [tests/host/test_card_memory.py::test_no_card_ever_holds_more_than_it_has]
- What runs is never ended by a switch: it ends by itself, or is kept.
"""
