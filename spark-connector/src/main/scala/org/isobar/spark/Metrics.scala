//! The metrics a scan shows in Spark's UI.
//! Must never count anything that the reader did not measure itself.
package org.isobar.spark

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}

/** One metric of one task. */
private[spark] final class TaskMetric(override val name: String, override val value: Long) extends CustomTaskMetric

// Spark makes these by reflection on the driver, so each is a class with an empty constructor.

final class RowsMetric extends CustomSumMetric {
  override def name: String = Metrics.Rows
  override def description: String = "rows over Flight"
}

final class BatchesMetric extends CustomSumMetric {
  override def name: String = Metrics.Batches
  override def description: String = "Arrow batches"
}

final class BytesMetric extends CustomMetric {
  override def name: String = Metrics.Bytes
  override def description: String = "Arrow bytes"
  override def aggregateTaskMetrics(values: Array[Long]): String = Metrics.mebibytes(values.sum)
}

final class WaitMetric extends CustomMetric {
  override def name: String = Metrics.Wait
  override def description: String = "time waited for batches, all tasks"
  override def aggregateTaskMetrics(values: Array[Long]): String = s"${values.sum / 1_000_000L} ms"
}

final class PeakMetric extends CustomMetric {
  override def name: String = Metrics.Peak
  override def description: String = "peak off-heap memory of a task"
  override def aggregateTaskMetrics(values: Array[Long]): String = Metrics.mebibytes(values.maxOption.getOrElse(0L))
}

object Metrics {
  val Rows = "isobarRows"
  val Batches = "isobarBatches"
  val Bytes = "isobarBytes"
  val Wait = "isobarWaitNanos"
  val Peak = "isobarPeakBytes"

  def all: Array[CustomMetric] =
    Array(new RowsMetric, new BatchesMetric, new BytesMetric, new WaitMetric, new PeakMetric)

  private[spark] def mebibytes(bytes: Long): String = f"${bytes / 1048576.0}%.1f MiB"
}
