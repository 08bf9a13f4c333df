"""The network between simulated engines: links, the flows on them, and what waits before them."""
