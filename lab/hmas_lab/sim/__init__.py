"""Systems, workloads, limits and experiments in virtual time, around the mesh of `hmas.sim`.

Engine profile, SLOs and lambda* are fixed before any policy is compared on them.
"""
