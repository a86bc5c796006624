//! Reading: every type with NULLs and extremes, pruning, row counts without columns, LIMIT.
package org.isobar.spark

import java.math.{BigDecimal => JBigDecimal}
import java.time.{Duration, Instant, LocalDate, LocalDateTime}

import scala.jdk.CollectionConverters._

import org.apache.arrow.flight.Location
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.types._

class ReadSuite extends SparkTest {
  private def big(text: String): JBigDecimal = new JBigDecimal(text)

  /** Arrays are equal only to themselves. */
  private def comparable(value: Any): Any = value match {
    case bytes: Array[Byte] => bytes.toSeq
    case other => other
  }

  test("every type arrives with its NULLs and extremes") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val frame = spark.table(s"${catalog()}.d.types")
    val expectedTypes = Seq[DataType](
      IntegerType,
      ByteType,
      ShortType,
      ShortType,
      IntegerType,
      IntegerType,
      LongType,
      IntegerType,
      LongType,
      LongType,
      DecimalType(20, 0),
      DoubleType,
      DecimalType(4, 2),
      DecimalType(18, 6),
      DecimalType(38, 10),
      StringType,
      StringType,
      StringType,
      DateType,
      TimestampNTZType,
      TimestampType,
      FloatType,
      BinaryType,
      BinaryType,
      BinaryType,
      IntegerType,
      LongType,
      LongType,
      DecimalType(20, 0),
      DayTimeIntervalType(),
      StringType,
      ByteType
    )
    assert(frame.schema.map(_.dataType) == expectedTypes)
    assert(frame.schema.map(_.nullable) == false +: Seq.fill(expectedTypes.length - 1)(true))
    val got = rows(frame).sortBy(_.getInt(0)).map(_.toSeq.map(comparable))
    val expected = Seq[Seq[Any]](
      1 +: Seq.fill(expectedTypes.length - 1)(null),
      Seq(
        2,
        (-128).toByte,
        0.toShort,
        (-32768).toShort,
        0,
        -8388608,
        0L,
        Int.MinValue,
        0L,
        Long.MinValue,
        big("0"),
        -Double.MaxValue,
        big("-99.99"),
        big("-999999999999.999999"),
        big("-9999999999999999999999999999.9999999999"),
        "",
        "",
        "",
        LocalDate.of(1, 1, 1),
        LocalDateTime.of(1, 1, 1, 0, 0),
        Instant.parse("1970-01-01T00:00:01Z"),
        -Float.MaxValue,
        Seq.fill(4)(0.toByte),
        Seq(),
        Seq(),
        0,
        0L,
        0L,
        big("0"),
        Duration.ofSeconds(-3_020_399),
        "null",
        (-128).toByte
      ),
      Seq(
        3,
        127.toByte,
        255.toShort,
        32767.toShort,
        65535,
        8388607,
        16777215L,
        Int.MaxValue,
        4294967295L,
        Long.MaxValue,
        big("18446744073709551615"),
        Double.MaxValue,
        big("99.99"),
        big("999999999999.999999"),
        big("9999999999999999999999999999.9999999999"),
        "Zürich",
        "𝄞 clef, ÿ, trailing ",
        "x" * 70_000,
        LocalDate.of(9999, 12, 31),
        LocalDateTime.parse("9999-12-31T23:59:59.999999"),
        Instant.parse("2038-01-19T03:14:07.999999Z"),
        Float.MaxValue,
        Seq.fill(4)((-1).toByte),
        Seq(0, 0xff, 0x80, 0xfe, 0xc3, 0x28).map(_.toByte),
        Seq.fill(70_000)(0xfe.toByte),
        2155,
        1L,
        Long.MaxValue,
        big("18446744073709551615"),
        Duration.ofSeconds(3_020_399),
        """{"a": [1, 2.5, 18446744073709551615, -1e308], "naïve ☃": {"𝄞": null}}""",
        127.toByte
      ),
      Seq(
        4,
        7.toByte,
        7.toShort,
        7.toShort,
        7,
        7,
        7L,
        7,
        7L,
        7L,
        big("7"),
        -0.5,
        big("-0.01"),
        big("0.000001"),
        big("1.5000000000"),
        "a",
        "ab",
        "abc",
        LocalDate.of(2024, 2, 29),
        LocalDateTime.parse("2024-03-10T02:30:00.000001"),
        Instant.parse("2024-03-10T07:30:00.000001Z"),
        Float.MinPositiveValue,
        Seq[Byte](0x61, 0, 0, 0),
        Seq[Byte](0x7f),
        Seq(0xc3.toByte, 0x28.toByte),
        1901,
        0L,
        5L,
        big("9223372036854775808"),
        Duration.ofNanos(-1000),
        "1.0",
        1.toByte
      )
    )
    got.zip(expected).foreach { case (row, wanted) =>
      row.zip(wanted).zip(frame.columns).foreach { case ((value, want), column) => assert(value == want, column) }
    }
    assert(got.length == expected.length)
  }

  test("values of every type go through rows, sorts and shuffles") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val frame = spark.table(s"${catalog()}.d.types")
    val direct = rows(frame).map(_.toSeq.map(comparable)).toSet
    frame.columns.foreach { column =>
      val sorted = rows(frame.repartition(3, frame(column)).sort(frame(column), frame("id")))
      assert(sorted.map(_.toSeq.map(comparable)).toSet == direct, column)
      assert(sorted.head.isNullAt(sorted.head.fieldIndex(column)) == (column != "id"), column)
      assert(frame.select(column).distinct().count() == direct.map(_(frame.columns.indexOf(column))).size, column)
    }
    assert(
      rows(frame.selectExpr("b63 & 4L", "tm + INTERVAL '1' SECOND").where("id = 4")).map(_.toSeq) ==
        Seq(Seq[Any](4L, Duration.ofNanos(999_999_000)))
    )
  }

  test("columns are read as batches, not row by row") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(50))
    val frame = spark.sql(s"SELECT sum(n) FROM ${catalog()}.d.t")
    assert(rows(frame).map(_.getLong(0)) == Seq(1275L))
    val scan = executed[BatchScanExec](frame).head
    assert(scan.supportsColumnar)
    assert(scan.metrics(Metrics.Rows).value == 50)
    assert(scan.metrics(Metrics.Batches).value == 26) // 17, 17 and 16 rows, two by two
    assert(scan.metrics(Metrics.Bytes).value > 0 && scan.metrics(Metrics.Peak).value > 0)
    assert(scan.metrics(Metrics.Wait).value > 0)
  }

  test("only the columns that a query needs are asked for") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val name = catalog()
    assert(rows(spark.sql(s"SELECT ts, i_int FROM $name.d.types WHERE d4 > 0")).length == 1)
    assert(scanned("columns") == Seq(Seq("i_int", "ts")))
  }

  test("count(*) needs no column at all") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(1001))
    assert(rows(spark.sql(s"SELECT count(*) FROM ${catalog()}.d.t")).head.getLong(0) == 1001)
    assert(scanned("columns") == Seq(Seq()))
  }

  test("an empty table is empty") {
    cluster.create("d", "t", TestTables.plain, Nil)
    val name = catalog()
    assert(rows(spark.table(s"$name.d.t")).isEmpty)
    assert(rows(spark.sql(s"SELECT count(*), sum(n) FROM $name.d.t")).map(_.toSeq) == Seq(Seq[Any](0L, null)))
  }

  test("LIMIT is pushed, and an early end cancels the stream and leaves no memory") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(30_000))
    val name = catalog()
    assert(rows(spark.sql(s"SELECT n FROM $name.d.t LIMIT 5")).length == 5)
    assert(cluster.scans.asScala.map(_.get("limit").asInt).toSeq == Seq(5))
    noMemoryIsHeld()
    // A limit that Spark cannot push stops reading in the middle.
    cluster.cancelled.set(0)
    assert(rows(spark.sql(s"SELECT n FROM $name.d.t WHERE word || '' = 'word-3' LIMIT 5")).length == 5)
    assert(cluster.scans.asScala.toSeq.last.get("limit").isNull)
    eventually(assert(cluster.cancelled.get > 0))
  }

  test("Spark gets what the server estimates") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(10))
    cluster.estimates = (123456L, 7890123L)
    val frame = spark.table(s"${catalog()}.d.t")
    val statistics = frame.queryExecution.optimizedPlan.stats
    assert(statistics.rowCount.contains(BigInt(123456)) && statistics.sizeInBytes == 7890123)
  }

  test("databases, tables and columns can be listed") {
    cluster.create("d", "t", TestTables.plain, Nil)
    cluster.create("e", "u", TestTables.plain, Nil)
    val name = catalog()
    assert(rows(spark.sql(s"SHOW NAMESPACES IN $name")).map(_.getString(0)) == Seq("d", "e"))
    assert(rows(spark.sql(s"SHOW TABLES IN $name.e")).map(_.getString(1)) == Seq("u"))
    assert(rows(spark.sql(s"DESCRIBE TABLE $name.e.u")).head.toSeq.take(2) == Seq("n", "bigint"))
    assert(!spark.catalog.tableExists(s"$name.e.missing"))
    assert(intercept[AnalysisException](spark.table(s"$name.e.missing")).getCondition == "TABLE_OR_VIEW_NOT_FOUND")
  }

  test("format isobar reads a table without a catalog") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(9))
    val reader = spark.read.format("isobar").option("endpoints", cluster.endpoints)
    val frame = reader.option("user", "ada").option("password", "engine").option("table", "d.t").load()
    assert(rows(frame.selectExpr("sum(square)")).head.getDecimal(0) == big("285"))
  }

  test("tasks prefer the hosts that own their regions") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(9))
    val frame = spark.table(s"${catalog()}.d.t")
    rows(frame)
    val partitions = executed[BatchScanExec](frame).head.inputPartitions
    assert(partitions.map(_.preferredLocations.toSeq) == Seq.fill(3)(Seq("127.0.0.1")))
    // Each part was read at its first owner: the parts go around the nodes.
    assert(cluster.streams.asScala.toSet == Set((0, 0), (1, 1), (0, 2)))
  }

  test("tasks do not prefer the hosts that would only fetch their rows from others") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(9))
    cluster.otherLocations = Seq(Location.forGrpcInsecure("localhost", cluster.ports.head))
    cluster.coordinators = cluster.ports.length
    val frame = spark.table(s"${catalog()}.d.t")
    rows(frame)
    val partitions = executed[BatchScanExec](frame).head.inputPartitions
    assert(partitions.map(_.preferredLocations.toSeq) == Seq.fill(3)(Seq("localhost")))
  }

  /** One field of all scans so far, which must be a list of names. */
  private def scanned(field: String): Seq[Seq[String]] =
    cluster.scans.asScala.toSeq.map(_.get(field).elements.asScala.map(_.textValue).toSeq)
}
