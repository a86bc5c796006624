//! Failures: each one typed, within a bounded wait, with what to do next, and without a byte left over.
package org.isobar.spark

import scala.jdk.CollectionConverters._

import org.apache.arrow.flight.{CallStatus, Location}

class FailureSuite extends SparkTest {
  private def plain(rows: Int = 30): Unit = cluster.create("d", "t", TestTables.plain, TestTables.plainRows(rows))

  test("a server that fails in the middle of a stream gives its error, not fewer rows") {
    plain()
    cluster.beforeBatch = (_, part, number) =>
      if (part == 1 && number == 3) throw cluster.fail(CallStatus.INTERNAL, "CORRUPT: block 7 of segment 12")
    val error = isobarError(rows(spark.table(s"${catalog()}.d.t")))
    assert(error.code == "CORRUPT" && error.getMessage.contains("block 7 of segment 12"))
    assert(error.getMessage.contains(".d.t from 127.0.0.1:") && error.advice.nonEmpty)
  }

  test("a task that fails once is run again with the same ticket, and no row comes twice") {
    plain()
    val failed = new java.util.concurrent.atomic.AtomicBoolean
    cluster.beforeBatch = (_, part, number) =>
      if (part == 1 && number == 3 && failed.compareAndSet(false, true))
        throw cluster.fail(CallStatus.UNAVAILABLE, "UNAVAILABLE: going down")
    assert(rows(spark.sql(s"SELECT sum(n), count(*) FROM ${catalog()}.d.t")).map(_.toSeq) == Seq(Seq(465L, 30L)))
    assert(cluster.streams.asScala.count(_._2 == 1) == 2)
  }

  test("a node that is down is passed over, for catalog calls and for reads") {
    plain()
    val name = catalog()
    cluster.stop(0)
    assert(rows(spark.sql(s"SELECT count(*) FROM $name.d.t")).head.getLong(0) == 30)
    assert(cluster.streams.asScala.map(_._1).toSet == Set(1))
  }

  test("an owner that refuses before the first batch is passed over") {
    plain()
    cluster.beforeBatch =
      (node, _, _) => if (node == 0) throw cluster.fail(CallStatus.UNAVAILABLE, "STALE_REGION: region 4 has moved")
    assert(rows(spark.sql(s"SELECT sum(n) FROM ${catalog()}.d.t")).head.getLong(0) == 465)
  }

  test("a node that accepts connections and says nothing is passed over, and costs later tasks nothing") {
    plain()
    val mute = new java.net.ServerSocket(0, 50, java.net.InetAddress.getByName("127.0.0.1"))
    try {
      cluster.otherLocations = Seq(Location.forGrpcInsecure("127.0.0.1", mute.getLocalPort))
      val name = catalog("requestTimeout" -> "2s")
      def timed(): Long = {
        val start = System.nanoTime
        assert(rows(spark.sql(s"SELECT sum(n), count(*) FROM $name.d.t")).map(_.toSeq) == Seq(Seq(465L, 30L)))
        (System.nanoTime - start) / 1_000_000L
      }
      val (first, second) = (timed(), timed())
      assert(first >= 2000 && second < 2000, s"first $first ms, then $second ms")
    } finally mute.close()
  }

  test("when no node answers, the error says so within a bounded time") {
    plain()
    val name = catalog("connectTimeout" -> "1s", "requestTimeout" -> "2s")
    cluster.stop(0)
    cluster.stop(1)
    val start = System.nanoTime
    val error = isobarError(spark.table(s"$name.d.t"))
    assert(error.code == "UNAVAILABLE" && error.advice.contains("endpoints"))
    assert(System.nanoTime - start < 10_000_000_000L)
  }

  test("a server that says nothing ends in TIMEOUT") {
    plain()
    cluster.beforeBatch = (_, _, number) => if (number == 1) Thread.sleep(1500)
    val error = isobarError(rows(spark.table(s"${catalog("requestTimeout" -> "300ms")}.d.t")))
    assert(error.code == "TIMEOUT" && error.getMessage.contains("300 ms"))
  }

  test("a ticket that this cluster did not sign") {
    plain()
    cluster.spoil = TestSpoil.ForgedTicket
    assert(isobarError(rows(spark.table(s"${catalog()}.d.t"))).code == "TICKET_FORGED")
  }

  test("a lease that the server ended while the query was planned") {
    plain()
    val frame = spark.table(s"${catalog()}.d.t")
    frame.queryExecution.executedPlan.collectLeaves().foreach(leaf => leaf.execute().partitions)
    cluster.endLeases()
    val error = isobarError(frame.collect())
    assert(error.code == "TICKET_EXPIRED" && error.advice.contains("snapshotTtl"))
  }

  test("a snapshot token that is forged, and one that is too old") {
    plain()
    assert(isobarError(rows(spark.table(s"${catalog("snapshot" -> "1-2-abc")}.d.t"))).code == "INVALID")
    val token = cluster.take(1).get("snapshot").textValue
    Thread.sleep(5)
    val error = isobarError(rows(spark.table(s"${catalog("snapshot" -> token)}.d.t")))
    assert(error.code == "SNAPSHOT_TOO_OLD" && !error.getMessage.contains(token))
  }

  test("a table that was dropped and created again since the query was analysed") {
    plain()
    val frame = spark.table(s"${catalog()}.d.t")
    frame.schema
    plain(5)
    val error = isobarError(rows(frame))
    assert(error.code == "TABLE_CHANGED" && error.getMessage.contains("created again"))
  }

  test("a table that is dropped and created again under a running job") {
    plain()
    // The first part waits until the table has changed; the second is asked for only then.
    cluster.beforeBatch = (_, part, number) => if (part == 0 && number == 0) plain(5)
    val error = isobarError(rows(spark.table(s"${catalog()}.d.t").coalesce(1)))
    assert(error.code == "TABLE_CHANGED")
  }

  test("a column whose type changed since the query was analysed") {
    plain()
    val frame = spark.table(s"${catalog()}.d.t")
    frame.schema
    val other = TestTables.plain.map(column => if (column.name == "n") column.copy(mysqlType = "int") else column)
    cluster.alter("d", "t", other, TestTables.plainRows(3))
    val error = isobarError(rows(frame))
    assert(error.code == "TABLE_CHANGED" && error.getMessage.contains("column n of type bigint"))
  }

  test("a stream of another type, with a dictionary, or with NULL where there can be none") {
    plain()
    val name = catalog()
    cluster.spoil = TestSpoil.OtherType
    assert(isobarError(rows(spark.sql(s"SELECT n FROM $name.d.t"))).code == "TABLE_CHANGED")
    cluster.spoil = TestSpoil.Dictionary
    val dictionary = isobarError(rows(spark.sql(s"SELECT word FROM $name.d.t")))
    assert(dictionary.code == "PROTOCOL" && dictionary.getMessage.contains("dictionary"))
    cluster.spoil = TestSpoil.NullInNotNull
    val nulls = isobarError(rows(spark.sql(s"SELECT n FROM $name.d.t")))
    assert(nulls.code == "CORRUPT" && nulls.getMessage.contains("column n"))
  }

  test("a column that Spark cannot hold is refused where it is asked for, by name; the others are read") {
    val columns = Seq(TestColumn("id", "int"), TestColumn("x", "decimal(65,30)"), TestColumn("z", "point"))
    cluster.create("d", "wide", columns, Nil)
    val name = catalog()
    val format = spark.read.format("isobar").option("endpoints", cluster.endpoints).option("table", "d.wide")
    val loaded = format.option("user", "ada").option("password", "engine").load()
    val whole = spark.table(s"$name.d.wide")
    Seq(whole, whole.select("x"), whole.where("x = '1'").select("id"), whole.where("x IS NULL").select("id"), loaded)
      .foreach { frame =>
        val error = isobarError(rows(frame))
        assert(error.code == "UNSUPPORTED")
        assert(error.getMessage.contains("d.wide: column x has type decimal(65,30), which Spark cannot hold; select"))
      }
    assert(cluster.scans.isEmpty)
    assert(rows(whole.select("id")).isEmpty && whole.count() == 0 && rows(loaded.select("id")).isEmpty)
    val described =
      rows(spark.sql(s"DESCRIBE TABLE $name.d.wide")).map(row => row.getString(0) -> row.getString(2)).toMap
    assert(described("z") == "point: cannot be read in Spark" && described("id") == null)
  }

  test("a wrong password, and a login that expired") {
    plain()
    val error = isobarError(spark.table(s"${catalog("password" -> "Wr0ngPa55")}.d.t"))
    assert(error.getMessage.contains("logging in as ada") && !error.getMessage.contains("Wr0ngPa55"))
    assert(error.code == "UNAUTHENTICATED")
    val name = catalog()
    assert(spark.table(s"$name.d.t").count() == 30)
    cluster.forgetLogins()
    assert(spark.table(s"$name.d.t").count() == 30)
  }

  test("unknown and malformed options are refused by name") {
    def refused(options: (String, String)*): String =
      intercept[IllegalArgumentException](spark.table(s"${catalog(options: _*)}.d.t")).getMessage
    assert(refused("endpoint" -> "x").contains(".endpoint; known are endpoints, user"))
    assert(refused("endpoints" -> "somewhere").contains("'somewhere' is not host:port"))
    assert(refused("requestTimeout" -> "soon").contains("requestTimeout: 'soon' is not a duration"))
    plain()
    val name = catalog()
    val error = intercept[IllegalArgumentException](
      spark.read.option("fetchSize", "10").table(s"$name.d.t").count()
    )
    assert(error.getMessage.contains("fetchSize"))
  }

  test("everything that would write is refused and says where to write instead") {
    plain()
    val name = catalog()
    Seq(
      s"INSERT INTO $name.d.t VALUES (1, 1, 'x')",
      s"INSERT OVERWRITE $name.d.t VALUES (1, 1, 'x')",
      s"DELETE FROM $name.d.t WHERE n = 1",
      s"TRUNCATE TABLE $name.d.t",
      s"CREATE TABLE $name.d.u (a INT)",
      s"CREATE TABLE $name.d.u AS SELECT 1 AS a",
      s"DROP TABLE $name.d.t",
      s"ALTER TABLE $name.d.t ADD COLUMN b INT",
      s"ALTER TABLE $name.d.t RENAME TO d.u",
      s"CREATE NAMESPACE $name.e",
      s"DROP NAMESPACE $name.d"
    ).foreach { statement =>
      val thrown = intercept[Throwable](spark.sql(statement))
      val texts = Iterator.iterate(thrown)(_.getCause).takeWhile(_ != null).map(_.toString).mkString("\n")
      assert(texts.contains("UnsupportedOperationException") && texts.contains("MySQL port"), s"$statement: $texts")
    }
    assert(spark.table(s"$name.d.t").count() == 30)
  }
}
