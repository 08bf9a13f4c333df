"""Pure code that several rooms share. It imports only contracts, and uses no clock, I/O or randomness."""
