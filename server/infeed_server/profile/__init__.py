"""Profiles of pipelines: what each stage costs, what this host can serve, what would help."""
