"""Spans of batches and metrics of calls by OpenTelemetry; imported where a provider is given."""
