"""Forecasts about stages of recorded workflows: what a job still needs, whether a tool is called, how long an answer is
(Maestro's Tables III, VI and VII)."""
