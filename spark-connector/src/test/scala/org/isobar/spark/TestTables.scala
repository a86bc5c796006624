//! Tables of the test server: rows in memory, their versions in time, and how they go into Arrow vectors.
//! Must never share code with the connector's type mapping or vectors, or both could be wrong together.
package org.isobar.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.time.{LocalDate, LocalDateTime, ZoneOffset}

import org.apache.arrow.vector._
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType}

/** A column of the test server.
  *
  * Values are BigInt for integers (year and bit, too), BigDecimal, Double, Float, String, Array[Byte], and Long for
  * days (date) or microseconds (datetime, timestamp, time); null is NULL.
  */
final case class TestColumn(name: String, mysqlType: String, nullable: Boolean = true) {
  private val words = mysqlType.split("[(), ]+").toSeq

  def kind: String = words.head
  private def isUnsigned: Boolean = words.contains("unsigned")

  def field: Field = new Field(name, new FieldType(nullable, arrow, null), null)

  private def arrow: ArrowType = kind match {
    case "tinyint" => new ArrowType.Int(8, !isUnsigned)
    case "smallint" => new ArrowType.Int(16, !isUnsigned)
    case "mediumint" | "int" => new ArrowType.Int(32, !isUnsigned)
    case "bigint" => new ArrowType.Int(64, !isUnsigned)
    case "bit" => new ArrowType.Int(64, false)
    case "year" => new ArrowType.Int(16, false)
    case "float" => new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE)
    case "binary" | "varbinary" | "longblob" => new ArrowType.Binary
    case "time" => new ArrowType.Duration(TimeUnit.MICROSECOND)
    case "json" => new ArrowType.LargeUtf8
    case "double" => new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE)
    case "decimal" => new ArrowType.Decimal(words(1).toInt, words(2).toInt, 128)
    case "date" => new ArrowType.Date(DateUnit.DAY)
    case "datetime" => new ArrowType.Timestamp(TimeUnit.MICROSECOND, null)
    case "timestamp" => new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC")
    case _ => new ArrowType.Utf8
  }

  /** Writes one value into a vector of this column's type. */
  def write(vector: FieldVector, row: Int, value: Any): Unit = (vector, value) match {
    case (v, null) => v.setNull(row)
    case (v: TinyIntVector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: SmallIntVector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: IntVector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: BigIntVector, x: BigInt) => v.setSafe(row, x.toLong)
    case (v: UInt1Vector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: UInt2Vector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: UInt4Vector, x: BigInt) => v.setSafe(row, x.toInt)
    case (v: UInt8Vector, x: BigInt) => v.setSafe(row, x.toLong)
    case (v: Float4Vector, x: Float) => v.setSafe(row, x)
    case (v: VarBinaryVector, x: Array[Byte]) => v.setSafe(row, x)
    case (v: DurationVector, x: Long) => v.setSafe(row, x)
    case (v: LargeVarCharVector, x: String) => v.setSafe(row, x.getBytes(UTF_8))
    case (v: Float8Vector, x: Double) => v.setSafe(row, x)
    case (v: DecimalVector, x: BigDecimal) => v.setSafe(row, x.bigDecimal.setScale(v.getScale))
    case (v: VarCharVector, x: String) => v.setSafe(row, x.getBytes(UTF_8))
    case (v: DateDayVector, x: Long) => v.setSafe(row, x.toInt)
    case (v: TimeStampMicroVector, x: Long) => v.setSafe(row, x)
    case (v: TimeStampMicroTZVector, x: Long) => v.setSafe(row, x)
    case (v, x) => throw new IllegalArgumentException(s"$name: ${x.getClass} into ${v.getClass}")
  }
}

/** One version of a table: what it was from `since` (a read timestamp) on. */
final case class TestVersion(since: Long, id: String, schemaVersion: Int, columns: Seq[TestColumn], rows: Seq[Seq[Any]])

object TestTables {
  def days(year: Int, month: Int, day: Int): Long = LocalDate.of(year, month, day).toEpochDay

  def micros(text: String): Long = {
    val instant = LocalDateTime.parse(text).toInstant(ZoneOffset.UTC)
    instant.getEpochSecond * 1_000_000L + instant.getNano / 1000
  }

  private val integers = for {
    (name, bits) <- Seq("tinyint" -> 8, "smallint" -> 16, "mediumint" -> 24, "int" -> 32, "bigint" -> 64)
    unsigned <- Seq(false, true)
  } yield {
    val column = TestColumn(s"${if (unsigned) "u" else "i"}_$name", if (unsigned) s"$name unsigned" else name)
    val limits =
      if (unsigned) (BigInt(0), (BigInt(1) << bits) - 1) else (-(BigInt(1) << bits - 1), (BigInt(1) << bits - 1) - 1)
    (column, limits)
  }

  /** One column of every type. */
  val everyType: Seq[TestColumn] = TestColumn("id", "int", nullable = false) +: integers.map(_._1) :++ Seq(
    TestColumn("f", "double"),
    TestColumn("d4", "decimal(4,2)"),
    TestColumn("d18", "decimal(18,6)"),
    TestColumn("d38", "decimal(38,10)"),
    TestColumn("c", "char(10)"),
    TestColumn("v", "varchar(20)"),
    TestColumn("t", "text"),
    TestColumn("day", "date"),
    TestColumn("dt", "datetime(6)"),
    TestColumn("ts", "timestamp(6)"),
    TestColumn("fl", "float"),
    TestColumn("bin", "binary(4)"),
    TestColumn("vb", "varbinary(20)"),
    TestColumn("bl", "longblob"),
    TestColumn("y", "year"),
    TestColumn("b1", "bit(1)"),
    TestColumn("b63", "bit(63)"),
    TestColumn("b64", "bit(64)"),
    TestColumn("tm", "time(6)"),
    TestColumn("js", "json"),
    TestColumn("flag", "tinyint(1)")
  )

  /** 838:59:59, the longest TIME. */
  val longest: Long = ((838L * 60 + 59) * 60 + 59) * 1_000_000

  private def bytes(values: Int*): Array[Byte] = values.map(_.toByte).toArray

  /** NULLs in every nullable column, the extremes of every type, and something ordinary. */
  val everyTypeRows: Seq[Seq[Any]] = Seq(
    BigInt(1) +: Seq.fill(everyType.length - 1)(null),
    (BigInt(2) +: integers.map(_._2._1)) ++ Seq(
      -1.7976931348623157e308,
      BigDecimal("-99.99"),
      BigDecimal("-999999999999.999999"),
      BigDecimal("-9999999999999999999999999999.9999999999"),
      "",
      "",
      "",
      days(1, 1, 1),
      micros("0001-01-01T00:00:00"),
      micros("1970-01-01T00:00:01"),
      -Float.MaxValue,
      bytes(0, 0, 0, 0),
      bytes(),
      bytes(),
      BigInt(0),
      BigInt(0),
      BigInt(0),
      BigInt(0),
      -longest,
      "null",
      BigInt(-128)
    ),
    (BigInt(3) +: integers.map(_._2._2)) ++ Seq(
      1.7976931348623157e308,
      BigDecimal("99.99"),
      BigDecimal("999999999999.999999"),
      BigDecimal("9999999999999999999999999999.9999999999"),
      "Zürich",
      "𝄞 clef, ÿ, trailing ",
      "x" * 70_000,
      days(9999, 12, 31),
      micros("9999-12-31T23:59:59.999999"),
      micros("2038-01-19T03:14:07.999999"),
      Float.MaxValue,
      bytes(0xff, 0xff, 0xff, 0xff),
      bytes(0, 0xff, 0x80, 0xfe, 0xc3, 0x28),
      Array.fill(70_000)(0xfe.toByte),
      BigInt(2155),
      BigInt(1),
      (BigInt(1) << 63) - 1,
      (BigInt(1) << 64) - 1,
      longest,
      """{"a": [1, 2.5, 18446744073709551615, -1e308], "naïve ☃": {"𝄞": null}}""",
      BigInt(127)
    ),
    (BigInt(4) +: integers.map(_ => BigInt(7))) ++ Seq(
      -0.5,
      BigDecimal("-0.01"),
      BigDecimal("0.000001"),
      BigDecimal("1.5"),
      "a",
      "ab",
      "abc",
      days(2024, 2, 29),
      micros("2024-03-10T02:30:00.000001"), // no such local time in New York, where the tests run
      micros("2024-03-10T07:30:00.000001"),
      Float.MinPositiveValue,
      bytes(0x61, 0, 0, 0),
      bytes(0x7f),
      bytes(0xc3, 0x28), // not UTF-8
      BigInt(1901),
      BigInt(0),
      BigInt(5),
      BigInt(1) << 63,
      -1L, // a microsecond before zero
      "1.0",
      BigInt(1)
    )
  )

  /** A plain table: `n` (1 … rows), `square`, and `word`, NULL in every tenth row. */
  val plain: Seq[TestColumn] = Seq(
    TestColumn("n", "bigint", nullable = false),
    TestColumn("square", "decimal(18,0)", nullable = false),
    TestColumn("word", "varchar(20)")
  )

  def plainRows(count: Int): Seq[Seq[Any]] = (1 to count).map { n =>
    Seq(BigInt(n), BigDecimal(BigInt(n) * n), if (n % 10 == 0) null else s"word-${n % 7}")
  }
}
