"""The gateway's HTTP server: connections, request bodies, the two routes that generate text, and all other routes."""
