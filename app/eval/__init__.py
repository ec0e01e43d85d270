"""Evaluation: quality beside latency, on one engine in one process, and the project's benchmarks."""
