"""HDFS as storage, by the REST interface that every name node serves (WebHDFS): no Java, no native library."""
