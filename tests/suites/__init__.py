"""Suites that several layers of tests run: each on what it has at hand."""
