"""Runs as lists of segments: appending one, and comparing two runs by arithmetic."""
