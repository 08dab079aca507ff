"""Object stores through obstore: S3, Google Cloud Storage and Azure."""
