"""QoS: turns telemetry into two views of each pool (H-MAS §3.3), V_short for fast regulation and V_long for slow
adaptation.

Invariants
- Every copy of the service aggregates all the time; only the copy that holds the lease publishes.
- Memory is bounded whatever arrives: windows are rings of buckets, quantiles are sketches, names beyond a bound
  are counted together as `other`.
- A view holds no NaN and no infinity; an empty window gives zeros.
"""
