"""What services write by Spark: small files joined into larger ones, and files of the past given back."""
