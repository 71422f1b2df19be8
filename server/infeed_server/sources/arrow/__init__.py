"""The sources of tables in columns: `parquet`, and `huggingface` for files of Arrow."""
