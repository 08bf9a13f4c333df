"""The order in which requests are served: the queue, the topologies, and what these are made of."""
