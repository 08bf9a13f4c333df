"""What pages are made of, for experiments and benchmarks alike: templates, goals, paired differences, rows that stand
from earlier runs."""
