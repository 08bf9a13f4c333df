"""QoS: turns telemetry into two views of each pool (H-MAS §3.3), V_short for fast regulation and V_long for slow
adaptation.

Invariants:
- Every copy of the service aggregates all the time; only the copy that holds the lease publishes.
  [tests/qos/test_qos_agent.py::test_a_standby_aggregates_in_silence_and_goes_on_from_there]
- Memory is bounded whatever arrives: windows are rings of buckets, quantiles are sketches, names beyond a bound are
  counted together as `other`. [tests/qos/test_qos_agent.py::test_tenants_beyond_the_bound_are_other]
  [tests/qos/test_qos_agent.py::test_pools_are_bounded_and_forgotten]
- An empty window gives zeros. [tests/qos/test_qos_agent.py::test_views_without_any_request_are_zeros]
"""
