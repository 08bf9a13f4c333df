"""The jobs of agents: which one a request continues, and what is left of its budget."""
