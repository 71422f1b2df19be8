"""The sources of tables in columns: `parquet`, `csv`, and `huggingface` for files of Arrow."""
