"""What the arbiter decides, without a clock, I/O or randomness."""
