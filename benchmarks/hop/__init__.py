"""The price of the hop: what a relay between client and engine costs in CPU and latency."""
