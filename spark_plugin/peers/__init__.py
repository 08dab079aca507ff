"""The names that users of Delta and Hudi bring along: used where they mean the same here, else told what to type instead."""
