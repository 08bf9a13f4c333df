"""What makes the results pages and trains what is trained on simulated runs: `python -m experiments`."""
