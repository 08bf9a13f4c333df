"""Scheduling by job: Maestro's Fig. 7 with generated workflows of its nine applications, in a closed loop."""
