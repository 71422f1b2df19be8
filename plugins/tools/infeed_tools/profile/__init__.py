"""Profiles of pipelines: what each stage costs, what this host can serve, where to look."""
