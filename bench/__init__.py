"""Benchmarks: never asserted on in tests, always printed with their conditions."""
