package lakelock;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import org.apache.spark.Partition;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.ParallelCollectionRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/** The rows of a query that has few, collected in the driver once, as Arrow or for a plan. */
public final class FewRows {
  /** A plan of the first rows of each partition of another, which Spark computes all at once. */
  public LogicalPlan firstOfEach(LogicalPlan plan, int most) {
    return new LocalLimit(Literal.create(Integer.valueOf(most), DataTypes.IntegerType), plan);
  }

  /**
   * What the driver has sent itself of a frame of Python values: the plan with these rows in place of the RDD, how many they
   * are, the function that a Python worker would call on them, and the number of partitions. Null if the frame is another, or
   * has more bytes. The rows are right if the function is the identity.
   */
  public Object[] sent(LogicalPlan plan, long mostBytes) throws Exception {
    scala.collection.Seq leaves = plan.collectLeaves();
    if (leaves.size() != 1 || !(leaves.head() instanceof LogicalRDD)) {
      return null;
    }
    LogicalRDD leaf = (LogicalRDD) leaves.head();
    RDD rdd = leaf.rdd();
    if (leaf.isStreaming() || !rdd.getCreationSite().startsWith("applySchemaToPythonRDD")) {
      return null;
    }
    ArrayList functions = new ArrayList();
    while (rdd.getClass().getSimpleName().equals("MapPartitionsRDD")) {
      functions.add(0, of(rdd, "f"));
      rdd = parent(rdd);
    }
    if (!(rdd instanceof PythonRDD) || !(parent(rdd) instanceof ParallelCollectionRDD)) {
      return null;
    }
    PythonFunction function = (PythonFunction) of(rdd, "func");
    Partition[] parts = parent(rdd).partitions();
    long bytes = 0;
    for (int part = 0; part < parts.length; part++) {
      for (Iterator sent = ((ParallelCollectionPartition) parts[part]).iterator(); sent.hasNext();) {
        bytes += ((byte[]) sent.next()).length;
      }
    }
    if (bytes > mostBytes) {
      return null;
    }
    ArrayList rows = new ArrayList();
    for (int part = 0; part < parts.length; part++) {
      Iterator values = ((ParallelCollectionPartition) parts[part]).iterator();
      for (int at = 0; at < functions.size(); at++) {
        values = (Iterator) ((scala.Function3) functions.get(at)).apply(null, Integer.valueOf(part), values);
      }
      while (values.hasNext()) {
        rows.add(values.next());
      }
    }
    LogicalPlan local = plan(leaf.output(), (InternalRow[]) rows.toArray(new InternalRow[0]));
    Object command = function.command().toArray(scala.reflect.ClassTag$.MODULE$.Byte());
    return new Object[] {with(plan, leaf, local), Integer.valueOf(rows.size()), command, Integer.valueOf(parts.length)};
  }

  private static Object of(Object owner, String name) throws Exception {
    Field field = owner.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field.get(owner);
  }

  private static RDD parent(RDD rdd) {
    return ((org.apache.spark.Dependency) rdd.dependencies().head()).rdd();
  }

  private LogicalPlan with(LogicalPlan plan, final LogicalPlan old, final LogicalPlan other) {
    return plan == old ? other : (LogicalPlan) plan.mapChildren(new scala.runtime.AbstractFunction1() {
      public Object apply(Object child) {
        return with((LogicalPlan) child, old, other);
      }
    });
  }

  /** The rows that a plan has in it. */
  public InternalRow[] held(LogicalPlan plan) {
    ArrayList rows = new ArrayList();
    for (Iterator each = ((LocalRelation) plan).data().iterator(); each.hasNext();) {
      rows.add(each.next());
    }
    return (InternalRow[]) rows.toArray(new InternalRow[0]);
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

  /**
   * The rows as a stream of Arrow, as text in base 64, since Py4J takes a hundred times as long for bytes; null for no rows.
   * Versions of Spark differ in flags at the end.
   */
  public String arrow(InternalRow[] rows, StructType schema, String zone) throws Exception {
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
        Iterator batches = (Iterator) methods[i].invoke(converters, given);
        return batches.hasNext() ? java.util.Base64.getEncoder().encodeToString((byte[]) batches.next()) : null;
      }
    }
    throw new NoSuchMethodException("ArrowConverters.toBatchWithSchemaIterator");
  }
}
