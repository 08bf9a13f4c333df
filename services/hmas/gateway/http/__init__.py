"""The HTTP half: connections, bodies, the hot routes and the rest of the API."""
