package lakelock;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.PartitionPath;

/**
 * The files of one snapshot, where Spark's file index looks for what it has listed before: so it never lists.
 *
 * Nothing invalidates them. REFRESH TABLE, or a write to a folder above, would otherwise make the index list the table's
 * folders and take every old slice that it finds for a file of the table.
 *
 * Spark's compiler of generated code, Janino, compiles this once for each JVM. It knows no generics. A list of texts is one
 * text, joined by NUL, because each call from Python costs far more than the work that it asks for.
 */
public final class SnapshotFiles extends FileStatusCache {
  private static final long BLOCK_BYTES = 128L * 1024 * 1024;

  private FileStatus[] files = new FileStatus[0];

  /** The files `root/key` of these sizes in bytes and modification times in milliseconds. */
  public SnapshotFiles of(String root, String keys, String sizes, String times) {
    String[] key = keys.split("\0");
    String[] size = sizes.split("\0");
    String[] time = times.split("\0");
    SnapshotFiles made = new SnapshotFiles();
    made.files = new FileStatus[key.length];
    for (int i = 0; i < key.length; i++) {
      Path path = new Path(root + "/" + key[i]);
      made.files[i] = new FileStatus(Long.parseLong(size[i]), false, 1, BLOCK_BYTES, Long.parseLong(time[i]), path);
    }
    return made;
  }

  /** The partitions in the folders `root/folder` with these rows as their values. */
  public List partitions(String root, String folders, scala.collection.Seq rows) {
    String[] folder = folders.split("\0");
    List found = new ArrayList();
    for (int i = 0; i < folder.length; i++) {
      found.add(new PartitionPath((InternalRow) rows.apply(i), new Path(root + "/" + folder[i])));
    }
    return found;
  }

  public scala.Option getLeafFiles(Path path) {
    return scala.Option.apply(files);
  }

  public void putLeafFiles(Path path, FileStatus[] leafFiles) {}

  public void invalidateAll() {}
}
