//! What counts as a difference: kinds, columns, NULLs, and values that look alike as text.
package org.isobar.examples

import java.time.{Instant, LocalDateTime}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.types._
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite

class DifferencesSuite extends AnyFunSuite with BeforeAndAfterAll {
  private lazy val spark = SparkSession
    .builder()
    .master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()

  override def afterAll(): Unit = spark.stop()

  private val schema = StructType(
    Seq(
      StructField("shop", StringType),
      StructField("id", LongType),
      StructField("price", DecimalType(12, 2)),
      StructField("note", StringType),
      StructField("weight", DoubleType),
      StructField("at", TimestampType),
      StructField("local", TimestampNTZType)
    )
  )
  private val key = Seq("shop", "id")
  private val noon = Instant.parse("2026-03-29T12:00:00.000001Z")
  private val wall = LocalDateTime.parse("2026-03-29T02:30:00")

  private def row(id: Long): Seq[Any] =
    Seq("a", id, new java.math.BigDecimal("1.50"), "note", 0.1, noon, wall)

  private def table(rows: Seq[Any]*): DataFrame =
    spark.createDataFrame(rows.map(Row.fromSeq).asJava, schema)

  private def found(lake: DataFrame, live: DataFrame): Seq[(Long, String, Seq[String])] =
    Differences
      .between(lake, live, key)
      .orderBy("id")
      .collect()
      .toSeq
      .map(row => (row.getAs[Long]("id"), row.getAs[String]("kind"), row.getSeq[String](row.fieldIndex("changed"))))

  test("equal tables do not differ, NULLs included") {
    val rows = Seq(row(1), row(2).updated(2, null).updated(3, null).updated(5, null), row(3).updated(4, Double.NaN))
    assert(found(table(rows: _*), table(rows.reverse: _*)).isEmpty)
  }

  test("missing, extra and changed rows are distinguished, with the columns that changed") {
    val lake = table(row(1), row(2), row(3).updated(3, "other").updated(4, 0.2))
    val live = table(row(2), row(3), row(4))
    assert(
      found(lake, live) ===
        Seq((1L, "missing", Nil), (3L, "changed", Seq("note", "weight")), (4L, "extra", Nil))
    )
  }

  test("a value and NULL differ, either way round") {
    val lake = table(row(1).updated(3, null), row(2), row(3).updated(3, ""))
    val live = table(row(1), row(2).updated(2, null), row(3).updated(3, null))
    assert(found(lake, live).map(found => (found._1, found._3)) === Seq((1L, Seq("note")), (2L, Seq("price")), (3L, Seq("note"))))
  }

  test("values are compared, not how they print") {
    val lake = table(row(1), row(2), row(3).updated(3, "note "), row(4).updated(4, 0.1 + 0.2 - 0.2))
    val live = table(
      row(1).updated(5, noon.plusNanos(1000)),
      row(2).updated(6, wall.plusNanos(1000)),
      row(3),
      row(4)
    )
    val columns = found(lake, live).map(found => (found._1, found._3))
    assert(columns === Seq((1L, Seq("at")), (2L, Seq("local")), (3L, Seq("note")), (4L, Seq("weight"))))
  }

  test("both rows come along, whole, and a side that has none is NULL") {
    val rows = Differences.between(table(row(1)), table(row(2)), key).orderBy("id").collect()
    assert(rows.map(_.isNullAt(4)).toSeq === Seq(false, true))
    assert(rows.map(_.isNullAt(5)).toSeq === Seq(true, false))
    assert(rows(0).getStruct(4).getDecimal(2) === row(1)(2) && rows(0).getStruct(4).getString(3) === "note")
  }

  test("keys that identify nothing are found") {
    val lake = table(row(1), row(1), row(2), row(3).updated(0, null))
    assert(Differences.ambiguous(lake, key).count() === 2)
    assert(Differences.ambiguous(table(row(1), row(2)), key).count() === 0)
  }
}
