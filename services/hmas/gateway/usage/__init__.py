"""Usage by day, tenant and API key: what settled requests add to, files that survive a restart, and their export."""
