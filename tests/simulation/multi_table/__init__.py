"""The model of transactions over several tables, in parts; `multi_table_model.py` beside this folder puts them together."""
