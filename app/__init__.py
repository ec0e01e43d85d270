"""The kvfuse service and its jobs: settings, command line, REST, ingest and answer flow."""

__version__ = "0.1.0"
