//! The connector against a running Isobar: set ISOBAR_ENDPOINTS=host:port,host:port (and ISOBAR_USER, ISOBAR_PASSWORD)
//! and every table that has a columnar replica is read; without it the suite is cancelled, by name. `make test` runs it
//! over a cluster of its own (tests/cluster/test_spark.py).
//! Must never write, and must read everything at one snapshot, so that online writers do not disturb it.
package org.isobar.spark

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{Column, DataFrame}
import org.apache.spark.sql.functions.{col, lit}
import org.scalatest.funsuite.AnyFunSuite

class RunningIsobarSuite extends AnyFunSuite {
  private lazy val spark = SparkTest.session
  private val catalog = "running"
  private val perTable = 200_000 // a larger table is read that far and not compared

  private def options: Map[String, String] = {
    // Not an assumption about the environment itself: a failed one prints all of it.
    val endpoints = sys.env.getOrElse("ISOBAR_ENDPOINTS", cancel("ISOBAR_ENDPOINTS is not set"))
    Map("endpoints" -> endpoints, "user" -> sys.env.getOrElse("ISOBAR_USER", "root"))
  }

  private def tables(): Seq[String] = {
    spark.conf.set(s"spark.sql.catalog.$catalog", classOf[IsobarCatalog].getName)
    options.foreach { case (key, value) => spark.conf.set(s"spark.sql.catalog.$catalog.$key", value) }
    for {
      database <- names(s"SHOW NAMESPACES IN $catalog", 0)
      table <- names(s"SHOW TABLES IN $catalog.`$database`", 1)
      name = s"$catalog.`$database`.`$table`"
      if replicas(name) > 0
    } yield name
  }

  private def names(statement: String, column: Int): Seq[String] =
    spark.sql(statement).collect().map(_.getString(column)).toSeq

  private def replicas(table: String): Int =
    spark
      .sql(s"SHOW TBLPROPERTIES $table ('columnar_replicas')")
      .collect()
      .headOption
      .flatMap(_.getString(1).toIntOption)
      .getOrElse(0)

  test("every table, column and pushed comparison agrees with Spark's own evaluation") {
    val found = tables()
    assume(found.nonEmpty, "skipped: no table has a columnar replica")
    val connection = ConnectionOptions.parse(
      new org.apache.spark.sql.util.CaseInsensitiveStringMap(options.asJava),
      ""
    )
    val client = IsobarClient.open(connection)
    val token = client.takeSnapshot().token
    try
      found.foreach { table =>
        def read: DataFrame = spark.read.option("snapshot", token).table(table)
        val rows = read.limit(perTable).collect()
        val total = read.count()
        assert(total == rows.length || rows.length == perTable, table)
        if (total == rows.length) compare(table, read, spark.createDataFrame(rows.toSeq.asJava, read.schema))
      }
    finally client.releaseSnapshot(token)
  }

  private def compare(table: String, remote: DataFrame, local: DataFrame): Unit = remote.columns.foreach { name =>
    val column = col(s"`$name`")
    val sample = local.where(column.isNotNull).select(column).limit(3).collect().map(_.get(0)).toSeq
    val conditions: Seq[Column] = Seq(column.isNull, column.isNotNull, !column.isNull) ++
      sample.flatMap { value =>
        val literal = lit(value).cast(remote.schema(name).dataType)
        Seq(column === literal, column =!= literal, column < literal, column >= literal, column <=> literal)
      }
    conditions.foreach { condition =>
      assert(remote.where(condition).count() == local.where(condition).count(), s"$table: $condition")
    }
  }

  test("two tables of one query, and a query that ends early, leave no memory") {
    tables().take(1).foreach { table =>
      spark.sql(s"SELECT count(*) FROM $table a CROSS JOIN (SELECT * FROM $table LIMIT 1) b").collect()
      spark.sql(s"SELECT * FROM $table LIMIT 1").collect()
      assert(Connections.allocatedBytes == 0)
    }
  }
}
