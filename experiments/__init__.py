"""The experiments in virtual time that make the pages of docs/results: `python -m experiments`."""
