"""The questions to perception and prediction, and what they contain of workers."""
