"""The stores of objects `gs://`, `s3://`, `az://` and `https://`, through obstore."""
