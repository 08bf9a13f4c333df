"""What the worker assumes of requests, and how it learns it: lengths, speeds, and waits for tags."""
