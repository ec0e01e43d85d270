"""The project's benchmarks: each returns a `BenchResult` with its side-by-side baseline."""
