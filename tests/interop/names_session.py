"""Java Hudi in a Spark with a Hive catalog: `python names_session.py JARS URIS PATH NAME TWIN`, run with PySpark 3.5.

Reads the table by its NAME, lets Hudi's own sync register it as TWIN and go over NAME, and prints the entries as Hive's
client has them.
This program imports nothing of lakelock: it is the witness.
"""

import json
import sys

from pyspark.sql import SparkSession

jars, uris, path, name, twin = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g")
    .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .config("spark.hadoop.hive.metastore.uris", uris)
    .enableHiveSupport()
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
jvm = spark._jvm


def entry(of):
    client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    found = client.getTable(*of.split("."))
    storage = found.getSd()
    told = {
        "columns": [[c.getName(), c.getType()] for c in storage.getCols()],
        "keys": [[c.getName(), c.getType()] for c in found.getPartitionKeys()],
        "parameters": dict(found.getParameters()),
        "serde": dict(storage.getSerdeInfo().getParameters()),
        "type": found.getTableType(),
        "formats": [storage.getInputFormat(), storage.getOutputFormat(), storage.getSerdeInfo().getSerializationLib()],
        "location": storage.getLocation(),
        "partitions": sorted([list(p.getValues()), p.getSd().getLocation()] for p in client.listPartitions(*of.split("."), -1)),
    }
    client.close()
    return told


conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
conf.set("hive.metastore.uris", uris)
ours = entry(name)


def sync(of):
    """Hudi's own sync of the table, under this name."""
    database, table = of.split(".")
    wanted = jvm.java.util.Properties()
    for key, value in {
        "hoodie.datasource.meta.sync.base.path": path,
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.metastore.uris": uris,
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.hive_sync.table": table,
        "hoodie.datasource.hive_sync.partition_fields": ",".join(key for key, _ in ours["keys"]),
        "hoodie.datasource.hive_sync.support_timestamp": "true",
    }.items():
        wanted.setProperty(key, value)
    jvm.org.apache.hudi.hive.HiveSyncTool(wanted, conf).syncHoodieTable()


rows = sorted([row["order_id"], row["shop"]] for row in spark.table(name).collect())
chosen = spark.sql(f"SELECT order_id FROM {name} WHERE shop = 'paris'").head()[0]
sync(twin)
sync(name)
print(json.dumps({"rows": rows, "chosen": chosen, "ours": ours, "ours after hudi": entry(name), "hudis": entry(twin)}))
