"""The dashboard: a page in the browser that shows `/api/v1`; docs/observability.md describes it."""
