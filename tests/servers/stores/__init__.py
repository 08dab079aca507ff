"""Object stores and HDFS, as emulators and real servers answer."""
