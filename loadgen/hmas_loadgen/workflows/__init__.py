"""Workflows of agents, whose calls are sent in a closed loop: recorded ones, and the project's own typed ones."""
