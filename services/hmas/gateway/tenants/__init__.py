"""Who sends a request, what it was promised, and the file and the keys behind that."""
