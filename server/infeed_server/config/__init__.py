"""Configuration: strict models, YAML with line numbers, `module:attr` names, reloaded files."""
