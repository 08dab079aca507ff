"""The demonstration: several Spark writers on one real table, two of them killed, compared with a serial replay."""
