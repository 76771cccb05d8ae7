"""Vectors in several chunks."""
