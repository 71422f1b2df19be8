"""Object stores `gs://`, `s3://`, `az://` and `https://`, through obstore."""
