"""SQL for a whole session: statements about lake tables run here, and every other one is Spark's."""
