"""Serving systems as the public knows them: engines behind a client that sends to the one with least outstanding."""
