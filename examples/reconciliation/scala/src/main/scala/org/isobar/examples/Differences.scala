//! The comparison of the nightly reconciliation, for jobs written in Scala: the same rules as classify.py beside it.
//! Must never compare texts of values, and must never write anything.
package org.isobar.examples

import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.functions._

object Differences {

  /** In the lake, not in the live table. */
  val Missing = "missing"

  /** In the live table, not in the lake. */
  val Extra = "extra"

  /** In both, and not the same. */
  val Changed = "changed"

  /** The rows at which two tables differ: the key, `kind`, `changed` (names of columns), and both rows as structs, `lake`
    * and `live`. Values are compared null-safe: NULL is NULL, and nothing else is.
    *
    * @param lake
    *   how it should be; columns that the live table has not are ignored
    * @param live
    *   how it is; its columns decide what is compared
    * @param key
    *   columns that identify rows on both sides, never NULL
    */
  def between(lake: DataFrame, live: DataFrame, key: Seq[String]): DataFrame = {
    val columns = live.columns.toSeq
    val keys = key.map(col)
    def side(frame: DataFrame, name: String): DataFrame =
      frame.select(keys :+ struct(columns.map(col): _*).as(name): _*)
    def differs(name: String): Column = not(col(s"lake.$name") <=> col(s"live.$name"))
    val changed = array_compact(array(columns.diff(key).map(name => when(differs(name), lit(name))): _*))
    val oneSided = when(col("live").isNull, Missing).when(col("lake").isNull, Extra)
    side(lake, "lake")
      .join(side(live, "live"), key, "full_outer")
      .withColumn("changed", when(oneSided.isNull, changed).otherwise(array().cast("array<string>")))
      .withColumn("kind", coalesce(oneSided, when(size(col("changed")) > 0, Changed)))
      .where(col("kind").isNotNull)
      .select(keys ++ Seq("kind", "changed", "lake", "live").map(col): _*)
  }

  /** Keys that a table holds more than once, or with a NULL in them: such rows cannot be matched. */
  def ambiguous(table: DataFrame, key: Seq[String]): DataFrame = {
    val empty = key.map(name => col(name).isNull).reduce(_ || _)
    table.groupBy(key.map(col): _*).count().where(col("count") > 1 || empty)
  }
}
