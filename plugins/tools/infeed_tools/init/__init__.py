"""Starter files: pipelines that are written for data that was looked at."""
