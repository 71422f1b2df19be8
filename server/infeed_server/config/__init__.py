"""Reading definitions: strict models, YAML with line numbers, `module:attr` names."""
