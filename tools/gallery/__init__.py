"""The gallery of pipelines, docs/gallery.md: each with its definition, a batch and its rate."""
