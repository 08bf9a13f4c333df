"""The experiments in virtual time that make the pages of docs/results, and the training of the meta controller's
selectors on simulated runs: `python -m experiments`."""
