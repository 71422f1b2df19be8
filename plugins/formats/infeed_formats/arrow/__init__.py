"""The sources of columnar tables: `parquet`, `csv`, and `huggingface` for Arrow files."""
