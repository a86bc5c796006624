//! Snapshots: one for all tables of a query, time travel, and the life of a lease.
package org.isobar.spark

import scala.jdk.CollectionConverters._

class SnapshotSuite extends SparkTest {
  private def tokens: Seq[String] = cluster.scans.asScala.toSeq.map(_.get("snapshot").textValue)

  private def called(action: String): Int = cluster.actions.asScala.count(_._1 == action)

  private def twoTables(): Unit = {
    cluster.create("d", "a", TestTables.plain, TestTables.plainRows(20))
    cluster.create("d", "b", TestTables.plain, TestTables.plainRows(10))
  }

  test("all tables of a query, subqueries included, are read at one snapshot") {
    twoTables()
    val name = catalog()
    val query = s"""SELECT count(*) FROM $name.d.a JOIN $name.d.b USING (n)
      WHERE a.n IN (SELECT n FROM $name.d.a WHERE n > 3) AND a.square > (SELECT min(square) FROM $name.d.b)
      UNION ALL SELECT sum(n) FROM $name.d.a"""
    assert(rows(spark.sql(query)).map(_.getLong(0)) == Seq(7L, 210L))
    assert(tokens.length >= 4 && tokens.distinct.length == 1)
    assert(called("snapshot.take") == 1)
  }

  test("DataFrames that are joined share a snapshot, whatever was planned before") {
    twoTables()
    val name = catalog()
    val (a, b) = (spark.table(s"$name.d.a"), spark.table(s"$name.d.b"))
    assert(a.count() == 20)
    val joined = a.join(b, "n")
    joined.queryExecution.optimizedPlan // planning outside of any action
    cluster.scans.clear()
    assert(joined.count() == 10) // a plan of its own: one more snapshot, shared
    assert(tokens.length == 2 && tokens.distinct.length == 1)
    cluster.scans.clear()
    joined.collect()
    assert(tokens.distinct.length <= 1)
  }

  test("a new query sees new rows; the same plan run again sees its own") {
    twoTables()
    val frame = spark.table(s"${catalog()}.d.a")
    assert(frame.collect().length == 20)
    cluster.write("d", "a", TestTables.plainRows(25))
    assert(frame.count() == 25)
    assert(frame.collect().length == 20)
  }

  test("VERSION AS OF and the options read the snapshot that a token names") {
    twoTables()
    val token = cluster.take(60_000).get("snapshot").textValue
    cluster.write("d", "a", TestTables.plainRows(3))
    val (now, fixed) = (catalog(), catalog("snapshot" -> token))
    def count(table: String): Long = rows(spark.sql(s"SELECT count(*) FROM $table")).head.getLong(0)
    assert(count(s"$now.d.a") == 3)
    assert(count(s"$now.d.a VERSION AS OF '$token'") == 20)
    assert(count(s"$fixed.d.a") == 20)
    assert(spark.read.option("snapshot", token).table(s"$now.d.a").count() == 20)
    assert(spark.read.option("versionAsOf", token).table(s"$now.d.a").count() == 20)
    val source = spark.read.format("isobar").option("endpoints", cluster.endpoints).option("user", "ada")
    assert(source.option("password", "engine").option("table", "d.a").option("snapshot", token).load().count() == 20)
    assert(called("snapshot.take") == 1) // for the one query without a token
    val refused = intercept[UnsupportedOperationException](
      spark.sql(s"SELECT * FROM $now.d.a TIMESTAMP AS OF '2026-01-01 00:00:00'")
    )
    assert(refused.getMessage.contains("VERSION AS OF '<snapshot token>'"))
  }

  test("a plan names its snapshot's timestamp, but never the token, the password or the login") {
    twoTables()
    val frame = spark.sql(s"SELECT * FROM ${catalog()}.d.a WHERE n > 3")
    rows(frame)
    val token = tokens.head
    val shown = Seq(frame.queryExecution.toString, frame.queryExecution.explainString(explainMode)).mkString
    assert(shown.contains(s"snapshot: this query's at ${token.takeWhile(_ != '-')}, parts: 3"))
    assert(!shown.contains(token) && !shown.contains("engine") && !shown.contains("Bearer"))
  }

  private def explainMode = org.apache.spark.sql.execution.ExplainMode.fromString("formatted")

  /** A lease that lives long enough to be renewed in time on a busy machine, and ends within a test. */
  private val shortLease = "snapshotTtl" -> "3s"

  test("a lease is renewed while the query runs") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(30))
    // A lease is renewed four times in its life, so that the first would have ended by the sixth renewal.
    cluster.beforeBatch = (_, _, _) => eventually(assert(called("snapshot.renew") >= 6))
    assert(rows(spark.table(s"${catalog(shortLease)}.d.t")).length == 30)
    assert(called("snapshot.take") == 1)
  }

  test("an idle plan lets its lease lapse; running it again says so") {
    twoTables()
    val frame = spark.table(s"${catalog(shortLease)}.d.a")
    assert(frame.collect().length == 20)
    eventually(assert(cluster.liveLeases == 0))
    assert(isobarError(frame.collect()).code == "TICKET_EXPIRED")
    assert(frame.count() == 20) // a plan of its own
  }

  test("a plan whose lease lapsed before it ran takes a new snapshot") {
    twoTables()
    val name = catalog(shortLease)
    val frame = spark.sql(s"SELECT * FROM $name.d.a JOIN $name.d.b USING (n)")
    frame.queryExecution.executedPlan
    eventually(assert(cluster.liveLeases == 0))
    cluster.write("d", "b", TestTables.plainRows(5))
    cluster.scans.clear()
    assert(frame.collect().length == 5)
    assert(tokens.length == 2 && tokens.distinct.length == 1)
  }

  test("a lease is given back once nothing refers to its plan") {
    twoTables()
    val name = catalog("snapshotTtl" -> "12s")
    assert(rows(spark.sql(s"SELECT count(*) FROM $name.d.a")).head.getLong(0) == 20)
    eventually {
      System.gc()
      assert(called("snapshot.release") == 1)
    }
    assert(cluster.liveLeases == 0)
  }

  test("a snapshot of the user's is neither renewed nor given back") {
    twoTables()
    val token = cluster.take(60_000).get("snapshot").textValue
    assert(rows(spark.table(s"${catalog("snapshot" -> token, "snapshotTtl" -> "200ms")}.d.a")).length == 20)
    Thread.sleep(400)
    assert(called("snapshot.take") == 0 && called("snapshot.renew") == 0 && called("snapshot.release") == 0)
    assert(cluster.liveLeases == 1)
  }

  test("a cached table is used for another query, and two equal scans are read once") {
    twoTables()
    val name = catalog()
    val query = s"SELECT x.n FROM (SELECT n FROM $name.d.a) x JOIN (SELECT n FROM $name.d.a) y ON x.n = y.n"
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try {
      assert(rows(spark.sql(query)).length == 20)
      assert(cluster.streams.size == cluster.parts)
    } finally spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    spark.sql(s"CACHE TABLE $name.d.a")
    cluster.streams.clear()
    assert(rows(spark.sql(s"SELECT sum(n) FROM $name.d.a")).head.getLong(0) == 210)
    assert(cluster.streams.isEmpty)
    spark.sql(s"UNCACHE TABLE $name.d.a")
  }
}
