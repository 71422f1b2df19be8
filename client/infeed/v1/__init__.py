"""Generated from proto/infeed/v1 by `make proto`; never edited by hand."""
