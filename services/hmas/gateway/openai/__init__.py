"""The formats of OpenAI's API: request bodies, error objects, and the API's description."""
