"""Changes of runs, by arithmetic on definitions: `infeed amend` and `infeed diff`."""
