"""The demonstration: Spark writers on one real table, agents on two, some of them killed, compared with a serial replay."""
