//! Filters: what is pushed, what is kept back, and that pushed filters give the answers that Spark itself gives.
package org.isobar.spark

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.connector.expressions.{Expression, Expressions, Literal, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.execution.FilterExec
import org.apache.spark.sql.functions.expr
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

class PushdownSuite extends SparkTest {

  /** Conditions that are pushed whole, over [[TestTables.everyType]]. */
  private val pushed = Seq(
    "i_tinyint = 7",
    "i_tinyint <> 7",
    "u_tinyint > 100",
    "i_smallint <= 7",
    "u_smallint >= 65535",
    "i_mediumint < 0",
    "u_mediumint = 16777215",
    "i_int IN (7, 2147483647)",
    "u_int > 4294967294",
    "i_bigint = -9223372036854775808",
    "u_bigint = 18446744073709551615BD",
    "u_bigint < 7BD",
    "u_bigint >= 9223372036854775808BD",
    "f > -0.5D",
    "f = -0.5D",
    "f <= 123456789.0625D",
    "f > 1E22D",
    "d4 = -0.01BD",
    "d4 > CAST(-1 AS DECIMAL(4,2))",
    "d18 <= 0.000001BD",
    "d38 > 1.4BD",
    "c = 'Zürich'",
    "c > 'Z'",
    "v LIKE 'a%'",
    "v LIKE '𝄞%'",
    "t <> 'abc'",
    "v IN ('ab', 'zz')",
    "day = DATE'2024-02-29'",
    "day < DATE'0002-01-01'",
    "day >= DATE'9999-12-31'",
    "dt = TIMESTAMP_NTZ'2024-03-10 02:30:00.000001'",
    "dt > TIMESTAMP_NTZ'2024-01-01 00:00:00'",
    "ts = TIMESTAMP'2024-03-10 07:30:00.000001+00:00'",
    "ts < TIMESTAMP'1970-01-01 00:00:02+00:00'",
    "v IS NULL",
    "NOT (v IS NULL)",
    "v IS NOT NULL AND i_int IS NULL",
    "i_int <=> 7",
    "NOT (i_int <=> 7)",
    "i_int = 7 OR v IS NULL",
    "NOT (i_int = 7 OR c = 'Zürich')",
    "NOT (i_int = 7 AND d4 = -0.01BD)",
    "(i_int < 0 OR f > 0.5D) AND (v <> 'ab' OR v IS NULL)",
    "7 >= i_int",
    "fl >= CAST(-0.25 AS FLOAT)",
    "fl < CAST(-1 AS FLOAT)",
    "fl > 0.5D",
    "bin = X'61000000'",
    "bin < X'7f'",
    "vb >= X'7f'",
    "vb = X''",
    "vb IN (X'7F', X'80')",
    "bl > X'c3'",
    "y = 1901",
    "y > 2000 OR y = 0",
    "b1 = 1L",
    "b63 >= 9223372036854775807L",
    "b64 = 18446744073709551615BD",
    "b64 >= 9223372036854775808BD",
    "tm < INTERVAL '0' SECOND",
    "tm = INTERVAL '838:59:59' HOUR TO SECOND",
    "tm >= INTERVAL '-0.000001' SECOND",
    "flag = 1",
    "js IS NULL",
    "NOT (js IS NOT NULL OR bl IS NOT NULL)"
  )

  /** Conditions that stay with Spark. */
  private val kept = Seq(
    "f = 0.0D",
    "f = 1.7976931348623157E308D",
    "f < 1E23D",
    "fl = CAST(1.4E-45 AS FLOAT)",
    "fl < CAST(-3.4E38 AS FLOAT)",
    "f < -0.0D",
    "f <> double('NaN')",
    "f < double('Infinity')",
    "f IN (0.0D, -0.5D)",
    "upper(c) = 'ZÜRICH'",
    "v LIKE '%b'",
    "v LIKE '%b%'",
    "i_int % 2 = 1",
    "i_int = i_smallint",
    "i_int = 7 OR upper(v) = 'AB'",
    "NOT (i_int = 7 AND upper(v) = 'AB')",
    "year(day) = 2024",
    "length(t) > 100",
    "v || '' = 'ab'",
    "js = '1.0'",
    "js > 'a'",
    "js IN ('null', '1.0')",
    "js LIKE '1%'",
    "startswith(bl, X'c3')",
    "fl = CAST(0 AS FLOAT)",
    "fl <> float('NaN')",
    "b63 & 4 = 4",
    "tm * 2 > INTERVAL '1' SECOND"
  )

  test("a pushed filter gives Spark's own answer, and is not evaluated twice") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val name = catalog()
    val whole = rows(spark.table(s"$name.d.types")).asJava
    val local = spark.createDataFrame(whole, spark.table(s"$name.d.types").schema)
    pushed.foreach { condition =>
      cluster.scans.clear()
      val frame = spark.table(s"$name.d.types").where(condition)
      val got = rows(frame.select("id")).map(_.getInt(0)).toSet
      val expected = rows(local.where(condition).select("id")).map(_.getInt(0)).toSet
      assert(got == expected, condition)
      assert(filters.length == 1 && !filters.head.isNull, s"$condition was not pushed")
      assert(executed[FilterExec](frame.select("id")).isEmpty, s"$condition is evaluated again")
    }
  }

  test("a filter that the server might answer differently stays with Spark") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val name = catalog()
    val local = spark.createDataFrame(
      rows(spark.table(s"$name.d.types")).asJava,
      spark.table(s"$name.d.types").schema
    )
    kept.foreach { condition =>
      cluster.scans.clear()
      val got = rows(spark.table(s"$name.d.types").where(condition).select("id")).map(_.getInt(0)).toSet
      assert(got == rows(local.where(condition).select("id")).map(_.getInt(0)).toSet, condition)
      // Spark adds IS NOT NULL for a column that a condition needs; that may be pushed, the condition may not.
      assert(filters.forall(filter => operators(filter).subsetOf(Set("is_not_null", "and"))), s"$condition: $filters")
    }
  }

  test("of two conditions, one pushed, the other is evaluated by Spark") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val frame = spark.table(s"${catalog()}.d.types").where(expr("i_int >= 7 AND upper(v) = 'AB'"))
    assert(rows(frame.select("id")).map(_.getInt(0)) == Seq(4))
    assert(operators(filters.head) == Set("and", ">=", "is_not_null"))
    val plan = frame.queryExecution.executedPlan.toString
    assert(plan.contains("upper(v") && plan.contains("pushed filters: [") && plan.contains("i_int >= 7"))
  }

  test("literals keep their exact value on the way") {
    cluster.create("d", "types", TestTables.everyType, TestTables.everyTypeRows)
    val name = catalog()
    def pushedLiteral(condition: String): String = {
      cluster.scans.clear()
      rows(spark.table(s"$name.d.types").where(condition).select("id"))
      comparisons(filters.head).map(_.get("value").toString).mkString
    }
    assert(pushedLiteral("u_bigint = 18446744073709551615BD") == """{"int":"18446744073709551615"}""")
    assert(pushedLiteral("d18 = 0.000001BD") == """{"decimal":"0.000001"}""")
    assert(pushedLiteral("day = DATE'1969-12-31'") == """{"date":-1}""")
    // Neither depends on the session's zone, which is New York's.
    assert(pushedLiteral("dt = TIMESTAMP_NTZ'1970-01-01 00:00:01'") == """{"datetime":"1000000"}""")
    assert(pushedLiteral("ts = TIMESTAMP'1970-01-01 00:00:01+00:00'") == """{"timestamp":"1000000"}""")
    assert(pushedLiteral("tm = INTERVAL '-838:59:59' HOUR TO SECOND") == """{"time":"-3020399000000"}""")
    assert(pushedLiteral("b64 = 18446744073709551615BD") == """{"int":"18446744073709551615"}""")
    assert(pushedLiteral("bl = X'00ff'") == """{"bytes":"AP8="}""")
    assert(pushedLiteral("fl = CAST(0.25 AS FLOAT)") == """{"double":0.25}""")
  }

  test("a literal that is out of the column's range, malformed or of another type is not translated") {
    val columns = Map(
      "tiny" -> ColumnType.of("tinyint unsigned").get,
      "big" -> ColumnType.of("bigint unsigned").get,
      "text" -> ColumnType.of("text").get,
      "real" -> ColumnType.of("double").get,
      "year" -> ColumnType.of("year").get,
      "bits" -> ColumnType.of("bit(10)").get,
      "doc" -> ColumnType.of("json").get,
      "blob" -> ColumnType.of("blob").get
    )
    def translated(column: String, value: Any, dataType: DataType): Boolean = {
      val reference: NamedReference = Expressions.column(column)
      val predicate = new Predicate("=", Array[Expression](reference, literal(value, dataType)))
      new PredicateTranslator(columns).translate(predicate).isDefined
    }
    assert(translated("tiny", 255.toShort, ShortType) && !translated("tiny", 256.toShort, ShortType))
    assert(!translated("tiny", (-1).toShort, ShortType) && !translated("tiny", 1, IntegerType))
    assert(translated("big", Decimal(BigDecimal("18446744073709551615"), 20, 0), DecimalType(20, 0)))
    assert(!translated("big", Decimal(BigDecimal("18446744073709551616"), 20, 0), DecimalType(20, 0)))
    assert(!translated("big", Decimal(BigDecimal("-1"), 20, 0), DecimalType(20, 0)))
    assert(translated("text", UTF8String.fromString("é"), StringType))
    assert(!translated("text", UTF8String.fromBytes(Array(0xff.toByte)), StringType))
    assert(!translated("text", UTF8String.fromString("a"), StringType("UTF8_LCASE")))
    assert(!translated("real", Double.NaN, DoubleType) && !translated("real", -0.0, DoubleType))
    assert(translated("year", 2155, IntegerType) && !translated("year", 2156, IntegerType))
    assert(translated("bits", 1023L, LongType) && !translated("bits", 1024L, LongType))
    assert(!translated("doc", UTF8String.fromString("1"), StringType) && translated("blob", Array[Byte](0), BinaryType))
    assert(!translated("tiny", null, ShortType) && !translated("other", 1.toShort, ShortType))
    val prefix = Array[Expression](Expressions.column("blob"), literal(Array[Byte](0), BinaryType))
    assert(new PredicateTranslator(columns).translate(new Predicate("STARTS_WITH", prefix)).isEmpty)
    assert(new PredicateTranslator(columns).translate(new Predicate("ALWAYS_TRUE", Array.empty)).isEmpty)
  }

  test("a literal on the left turns the comparison around") {
    val translator = new PredicateTranslator(Map("n" -> ColumnType.of("int").get))
    val turned = Map("<" -> ">", "<=" -> ">=", ">" -> "<", ">=" -> "<=", "=" -> "=", "<>" -> "<>", "<=>" -> "<=>")
    turned.foreach { case (written, expected) =>
      val predicate = new Predicate(written, Array[Expression](literal(5, IntegerType), Expressions.column("n")))
      assert(translator.translate(predicate).map(_.get("op").textValue).contains(expected), written)
    }
  }

  private def literal(held: Any, heldType: DataType): Literal[Any] = new Literal[Any] {
    override def value: Any = held
    override def dataType: DataType = heldType
    override def children: Array[Expression] = Expression.EMPTY_EXPRESSION
  }

  private def filters: Seq[JsonNode] = cluster.scans.asScala.toSeq.map(_.get("filter"))

  private def operators(node: JsonNode): Set[String] =
    if (node.isNull) Set.empty else node.findValuesAsText("op").asScala.toSet

  private def comparisons(node: JsonNode): Seq[JsonNode] =
    node.findParents("value").asScala.toSeq
}
