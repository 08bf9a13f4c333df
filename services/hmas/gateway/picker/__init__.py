"""The endpoint picker: Envoy asks this gateway where each request goes, and carries it there itself
(Gateway API Inference Extension, proposal 004)."""
