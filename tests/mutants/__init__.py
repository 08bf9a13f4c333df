"""Mutation tests: whether a room's unit tests notice small faults in what it decides (`make mutants ROOM= N=`)."""
