package lakelock;

import java.lang.reflect.Method;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The rows of a query that has few, collected in the driver once, as Arrow or for a plan. */
public final class FewRows {
  /** A plan of the first rows of each partition of another, which Spark computes all at once. */
  public LogicalPlan firstOfEach(LogicalPlan plan, int most) {
    return new LocalLimit(Literal.create(Integer.valueOf(most), DataTypes.IntegerType), plan);
  }

  /** All rows, computed as Spark computes those of `collect`: with the session's confs, and seen as a query in its UI. */
  public InternalRow[] of(final QueryExecution query) {
    return (InternalRow[]) SQLExecution.withNewExecutionId(
        query, scala.Option.apply("lakelock: few rows"), new scala.runtime.AbstractFunction0() {
          public Object apply() {
            return query.executedPlan().executeCollect();
          }
        });
  }

  /** A plan that has the rows in it, with these columns. The versions of Spark differ in what else it is told. */
  public LogicalPlan plan(scala.collection.Seq columns, InternalRow[] rows) throws Exception {
    java.lang.reflect.Constructor made = LocalRelation.class.getConstructors()[0];
    Object[] given = new Object[made.getParameterTypes().length];
    given[0] = columns;
    given[1] = scala.Predef.wrapRefArray(rows).toList();
    given[2] = Boolean.FALSE;
    for (int at = 3; at < given.length; at++) {
      given[at] = scala.Option.empty();
    }
    return (LogicalPlan) made.newInstance(given);
  }

  /** The rows as a stream of Arrow; null for no rows. Versions of Spark differ in flags at the end. */
  public byte[] arrow(InternalRow[] rows, StructType schema, String zone) throws Exception {
    Object converters = Class.forName("org.apache.spark.sql.execution.arrow.ArrowConverters$").getField("MODULE$").get(null);
    Method[] methods = converters.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("toBatchWithSchemaIterator")) {
        Class[] types = methods[i].getParameterTypes();
        Object[] given = new Object[types.length];
        given[0] = scala.Predef.wrapRefArray(rows).iterator();
        given[1] = schema;
        given[2] = Long.valueOf(Integer.MAX_VALUE);
        given[3] = Long.valueOf(Integer.MAX_VALUE);
        given[4] = zone;
        for (int at = 5; at < types.length; at++) {
          given[at] = Boolean.FALSE;
        }
        scala.collection.Iterator batches = (scala.collection.Iterator) methods[i].invoke(converters, given);
        return batches.hasNext() ? (byte[]) batches.next() : null;
      }
    }
    throw new NoSuchMethodException("ArrowConverters.toBatchWithSchemaIterator");
  }
}
