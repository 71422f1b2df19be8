"""The tool `infeed index`: indices of records, before a server needs them."""
