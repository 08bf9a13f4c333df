"""Whether a request may come in, and when it may come back: limits, waiting times and promises."""
