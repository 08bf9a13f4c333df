"""Tenants: whose request it is by its API key, which SLO and priority it gets, and the file that defines both."""
