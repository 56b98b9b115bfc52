"""A model as a service: rows come in over HTTP and are answered, and every answer is logged with its version."""
