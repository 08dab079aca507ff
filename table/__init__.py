"""Hudi tables, version 9, copy-on-write: their files as values, and thin edges that read them from a `Storage`.

`layout` and `instants` name things; `timeline`, `properties`, `commit_metadata`, `services` and `snapshot` say what a
table holds and who may see it; `partitions`, `record_keys` and `schema` turn rows into Hudi's terms; `base_file`, `bloom`,
`index` and `merge` read and write the Parquet files.
"""
