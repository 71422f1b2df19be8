"""Observation: what the server, its pipelines and its trainers have done in the last seconds."""
