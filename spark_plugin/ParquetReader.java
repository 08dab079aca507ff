package lakelock;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's Parquet reader, without the filters by which Parquet leaves out rows that Spark would find.
 *
 * To Spark 0.0 and -0.0 are equal, and so are all NaN. Parquet's dictionaries, Bloom filters and bounds tell them apart, so
 * a filter with such a value is left to Spark alone. The reader that tasks get is Spark's own: they do not know this class.
 *
 * Scala 2.12 and 2.13 mean different types by `Seq`; one of the two methods replaces Spark's.
 */
public final class ParquetReader extends ParquetFileFormat {
  public scala.Function1 buildReaderWithPartitionValues(
      SparkSession session, StructType data, StructType partition, StructType required,
      scala.collection.Seq filters, scala.collection.immutable.Map options, Configuration configuration) {
    return new ParquetFileFormat().buildReaderWithPartitionValues(
        session, data, partition, required, kept(filters).toSeq(), options, configuration);
  }

  public scala.Function1 buildReaderWithPartitionValues(
      SparkSession session, StructType data, StructType partition, StructType required,
      scala.collection.immutable.Seq filters, scala.collection.immutable.Map options, Configuration configuration) {
    return new ParquetFileFormat().buildReaderWithPartitionValues(
        session, data, partition, required, kept(filters).toSeq(), options, configuration);
  }

  private static scala.collection.Seq kept(scala.collection.Seq filters) {
    return (scala.collection.Seq) filters.filterNot(new scala.runtime.AbstractFunction1() {
      public Object apply(Object filter) {
        return Boolean.valueOf(asksForZeroOrNaN(filter));
      }
    });
  }

  /** Whether a filter, a value of one, or anything in it is a zero or NaN among the floating-point numbers. */
  private static boolean asksForZeroOrNaN(Object part) {
    if (part instanceof Double || part instanceof Float) {
      double number = ((Number) part).doubleValue();
      return number == 0 || number != number;
    }
    if (part instanceof Object[]) {
      Object[] values = (Object[]) part;
      for (int i = 0; i < values.length; i++) {
        if (asksForZeroOrNaN(values[i])) {
          return true;
        }
      }
    }
    if (part instanceof Filter) {
      scala.collection.Iterator inside = ((scala.Product) part).productIterator();
      while (inside.hasNext()) {
        if (asksForZeroOrNaN(inside.next())) {
          return true;
        }
      }
    }
    return false;
  }
}
