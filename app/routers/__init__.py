"""HTTP routes, thin over the service."""
