"""One module a family of formats: bytes to an Extract."""
