"""The three wire formats: a conversation to a request body, a response body to a reply. Pure functions, no I/O."""
