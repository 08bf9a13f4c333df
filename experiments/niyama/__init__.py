"""Niyama's evaluation (§4) in virtual time: its workloads, its systems, its tables and figures beside ours."""
