//! What runs on executors: one task reads one ticket and hands Spark columnar batches.
//! Must never know a password, and never keep a batch past the next one: Flight reuses its memory.
package org.isobar.spark

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

import scala.jdk.CollectionConverters._

import org.isobar.spark.IsobarException.Code

/** One ticket, and the nodes where it can be redeemed. Tickets are replayable, and name no region: Spark may run the
  * task again, and late, whatever has happened to the table.
  */
final class IsobarPartition(part: ScanPart) extends InputPartition {
  def ticket: Array[Byte] = part.ticket
  def locations: Seq[Endpoint] = part.locations
  override def preferredLocations: Array[String] = locations.take(part.replicas).map(_.host).distinct.toArray
}

/** What all tasks of a scan have in common. `bearer` is a short-lived log-in, never the password. */
final class ReadTask(
    val table: String,
    val columns: Seq[ColumnInfo],
    val bearer: String,
    val connectTimeoutMillis: Int,
    val requestTimeoutMillis: Long
) extends Serializable {
  override def toString: String = s"ReadTask($table)"
}

final class IsobarReaderFactory(task: ReadTask) extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException(s"table ${task.table} is read in columns only")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = partition match {
    case isobar: IsobarPartition => new IsobarReader(task, isobar)
    case other => throw new IllegalArgumentException(s"not an Isobar partition: ${other.getClass.getName}")
  }
}

/** Reads one ticket. Memory is given back by `close`, which Spark calls when the task ends in whatever way; a listener
  * of the task does so too, in case Spark never gets to hold the reader.
  */
final class IsobarReader(task: ReadTask, partition: IsobarPartition) extends PartitionReader[ColumnarBatch] {
  private val stream = new FlightBatches(task, partition)
  private var batch: Option[(VectorSchemaRoot, ColumnarBatch)] = None
  private var rows = 0L
  private var batches = 0L
  private var bytes = 0L

  Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => stream.close()))

  override def next(): Boolean = stream.next() match {
    case None => false
    case Some(root) =>
      checkNulls(root)
      val count = root.getRowCount
      rows += count
      batches += 1
      bytes += root.getFieldVectors.asScala.map(_.getBufferSize.toLong).sum
      columnar(root).setNumRows(count)
      true
  }

  override def get(): ColumnarBatch = batch match {
    case Some((_, columnar)) => columnar
    case None => throw new IllegalStateException("get before next")
  }

  /** One ColumnarBatch for the whole stream: Flight fills the same vectors again and again. */
  private def columnar(root: VectorSchemaRoot): ColumnarBatch = batch match {
    case Some((known, made)) if known eq root => made
    case _ =>
      val columns = task.columns
        .zip(root.getFieldVectors.asScala)
        .map { case (column, vector) =>
          Vectors.column(ColumnType.require(task.table, column), vector): ColumnVector
        }
        .toArray
      val made = new ColumnarBatch(columns)
      batch = Some(root -> made)
      made
  }

  /** Spark's generated code skips NULL checks for NOT NULL columns and would read garbage. */
  private def checkNulls(root: VectorSchemaRoot): Unit =
    task.columns.zip(root.getFieldVectors.asScala).foreach { case (column, vector) =>
      if (!column.nullable && vector.getNullCount > 0) {
        throw IsobarException(Code.Corrupt, s"table ${task.table}: NULL in column ${column.name}, which is NOT NULL")
      }
    }

  override def currentMetricsValues(): Array[CustomTaskMetric] = Array(
    new TaskMetric(Metrics.Rows, rows),
    new TaskMetric(Metrics.Batches, batches),
    new TaskMetric(Metrics.Bytes, bytes),
    new TaskMetric(Metrics.Wait, stream.waitedNanos),
    new TaskMetric(Metrics.Peak, stream.peakBytes)
  )

  override def close(): Unit = stream.close()
}
