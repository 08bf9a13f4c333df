"""Where a request goes: the choice of a worker, the move to another, and the bypass of a silent one."""
