//! Compares one live table with its Parquet files in the lake and prints what differs: the first step of the nightly
//! reconciliation, for `spark-submit --class org.isobar.examples.CompareTable`. Must never write anything.
package org.isobar.examples

import org.apache.spark.sql.SparkSession

object CompareTable {
  private val usage = "usage: CompareTable LAKE_FOLDER CATALOG.DATABASE.TABLE KEY,KEY SNAPSHOT_TOKEN"

  def main(arguments: Array[String]): Unit = arguments match {
    case Array(folder, table, key, token) =>
      val spark = SparkSession.builder().getOrCreate()
      try {
        val lake = spark.read.parquet(folder)
        val live = spark.read.option("snapshot", token).table(table)
        val keys = key.split(',').toSeq
        val unclear = Differences.ambiguous(lake, keys).count()
        require(unclear == 0, s"$folder: $unclear keys do not identify rows")
        Differences
          .between(lake.select(live.columns.head, live.columns.tail.toSeq: _*), live, keys)
          .groupBy("kind")
          .count()
          .orderBy("kind")
          .collect()
          .foreach(row => println(s"${row.getString(0)} ${row.getLong(1)}"))
      } finally spark.stop()
    case _ =>
      Console.err.println(usage)
      sys.exit(2)
  }
}
