"""Java Hudi at the other end of a pipe: `python java_session.py JARS`, run by the environment with PySpark 3.5.

Reads commands from stdin, one JSON object a line: `number`, `do` and what the command takes. Each runs in a thread of its
own, so that several writers can be at it in one JVM, and is answered by one line of JSON on stdout. Rows go both ways as
Parquet files, which keep every type.
This program imports nothing of lakelock: it is the witness.
"""

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

# A gate that opens with content in it ends the job.
WAIT = "until [ -e 'GATE' ]; do sleep 0.02; done; [ ! -s 'GATE' ] || exit 1; cat"
# Hudi has 16 MB for each log file that it opens, three times: with less room a fifth of the time went into collections.
ROOM = "-Xms2g -Xmn1200m -XX:MetaspaceSize=512m"
JVM = f"{ROOM} -Duser.timezone=UTC -Daws.region=us-east-1"
META = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever else writes to stdout must not look like an answer
answering = threading.Lock()


def session(jars):
    return (
        SparkSession.builder.master("local[2]")
        .appName("java-hudi")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", JVM)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .getOrCreate()
    )


def rows_of(spark, command):
    """The rows to write: from a file, of a `query`, whose columns may be not null, or of another Hudi `table`.

    With `gate` no task gets them before that file exists, or with `half` none gets the second half.
    """
    if "query" in command:
        return spark.sql(command["query"])
    if "table" in command:
        return spark.read.format("hudi").load(command["table"]).drop(*META)
    found = spark.read.parquet(command["rows"])
    if command.get("gate"):
        gate = command["gate"]
        waiting = spark.sparkContext._jsc.parallelize(["go"], 1).pipe(["sh", "-c", WAIT.replace("GATE", gate)])
        encoders = spark.sparkContext._jvm.org.apache.spark.sql.Encoders
        gated = DataFrame(spark._jsparkSession.createDataset(waiting.rdd(), encoders.STRING()).toDF(), spark)
        if command.get("half"):
            # The rows behind the gate are in a task of their own.
            last = found.where(command["half"]).crossJoin(gated.selectExpr("value as gate")).drop("gate")
            return found.where(f"not ({command['half']})").coalesce(1).union(last.coalesce(1))
        found = found.crossJoin(gated.selectExpr("value as gate")).drop("gate")
    return found


def write(spark, command):
    rows_of(spark, command).write.format("hudi").options(**command["options"]).mode("append").save(command["path"])
    return {}


def read(spark, command):
    if "query" in command:
        found = spark.sql(command["query"])
    else:
        found = spark.read.format("hudi").options(**command.get("options", {})).load(command["path"])
    found = found.where(command.get("where", "true")).drop(*META)
    found.coalesce(1).write.mode("overwrite").parquet(command["to"])
    return {}


def sql(spark, command):
    rows = spark.sql(command["text"]).collect()
    return {"rows": [row.asDict() for row in rows]}


def listing(spark, command):
    """The data files of each partition and their lengths, by the metadata table."""
    hudi, table = spark.sparkContext._jvm.org.apache.hudi, command["path"]
    conf = hudi.storage.hadoop.HadoopStorageConfiguration(spark.sparkContext._jsc.hadoopConfiguration())
    engine = hudi.client.common.HoodieSparkEngineContext(spark.sparkContext._jsc)
    config = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(True).build()
    storage = hudi.storage.hadoop.HoodieHadoopStorage(table, conf)
    factory = hudi.metadata.NativeTableMetadataFactory
    # Hudi 1.0 has no such class.
    maker = hudi.metadata.HoodieTableMetadata if isinstance(factory, JavaPackage) else factory.getInstance()
    metadata = maker.create(engine, storage, config, table)
    folders = spark.sparkContext._jvm.java.util.ArrayList()
    for partition in metadata.getAllPartitionPaths():
        folders.add(f"{table}/{partition}" if partition else table)
    listed = metadata.getAllFilesInPartitions(folders)
    metadata.close()
    return {"files": {str(file.getPath().toUri().getPath()): file.getLength() for files in listed.values() for file in files}}


def matches(spark, command):
    """The keys of the rows that satisfy each condition; with `skipping` by the metadata table and its statistics."""
    told = str(command["skipping"]).lower()
    options = {"hoodie.metadata.enable": told, "hoodie.enable.data.skipping": told}
    key, conditions = command["key"], command["conditions"]

    def rows():
        return spark.read.format("hudi").options(**options).load(command["path"])

    def satisfying(condition):
        return sorted(str(row[0]) for row in rows().where(condition).select(key).collect())

    if command["skipping"]:
        with ThreadPoolExecutor(4) as threads:
            return {"found": list(threads.map(satisfying, conditions))}
    answers = rows().selectExpr(key, *(f"({condition}) as c{number}" for number, condition in enumerate(conditions))).collect()
    return {"found": [sorted(str(row[0]) for row in answers if row[number]) for number in range(1, len(conditions) + 1)]}


COMMANDS = {"write": write, "read": read, "sql": sql, "listing": listing, "matches": matches}


def told(error):
    """The chain of Java causes, each as its class and message."""
    found = []
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None and len(found) < 12:
        found.append([cause.getClass().getSimpleName(), str(cause.getMessage())[:2000]])
        cause = cause.getCause()
    return found or [[type(error).__name__, str(error)[:2000]]]


def obey(spark, command):
    try:
        answer = COMMANDS[command["do"]](spark, command)
    except Exception as error:  # noqa: BLE001 whatever it is, the other end hears of it
        answer = {"error": told(error)}
    with answering:
        answers.write(json.dumps({"number": command["number"], **answer}, default=str) + "\n")


def main():
    spark = session(sys.argv[1])
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    answers.write(json.dumps({"ready": spark.version, "pid": pid}) + "\n")
    for line in sys.stdin:
        threading.Thread(target=obey, args=(spark, json.loads(line)), daemon=True).start()
    spark.stop()


if __name__ == "__main__":
    main()
