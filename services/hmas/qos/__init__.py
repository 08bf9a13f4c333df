"""QoS: telemetry in, two views out (H-MAS §3.3). V_short for fast regulation, V_long for slow adaptation.

Invariants
- Aggregation never stops; publication happens only while this copy holds the writer's epoch.
- Memory is bounded whatever arrives: windows are rings of buckets, quantiles are sketches, names beyond a bound
  are counted together as `other`.
- A view holds no NaN and no infinity; an empty window gives zeros.
"""
