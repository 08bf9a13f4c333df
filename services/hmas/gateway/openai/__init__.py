"""OpenAI's formats: request bodies, error objects, the description of the API."""
