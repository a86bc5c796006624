//! Options and types by themselves, without Spark or a server.
package org.isobar.spark

import java.nio.file.Files

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.scalatest.funsuite.AnyFunSuite

class OptionsSuite extends AnyFunSuite {
  private def parse(options: (String, String)*): ConnectionOptions =
    ConnectionOptions.parse(
      new CaseInsensitiveStringMap((Map("endpoints" -> "h:1") ++ options).asJava),
      "c.",
      environment = Map(ConnectionOptions.PasswordVariable -> "from environment").get
    )

  private def refused(options: (String, String)*): String =
    intercept[IllegalArgumentException](parse(options: _*)).getMessage

  test("endpoints, durations and defaults") {
    assert(parse("endpoints" -> " a:1, [::1]:2 ").endpoints == Seq(Endpoint("a", 1), Endpoint("::1", 2)))
    assert(parse("SNAPSHOTTTL" -> "90s").snapshotTtlMillis == 90_000)
    assert(parse().user == "root" && parse().snapshot.isEmpty && parse().requestTimeoutMillis == 60_000)
    Seq("a", "a:", ":1", "a:0", "a:65536", "a:x", ",").foreach { text =>
      assert(refused("endpoints" -> text).contains("c.endpoints"), text)
    }
    Seq("0s", "5", "-1s", "1d", "99999999h").foreach { text =>
      assert(refused("connectTimeout" -> text).contains("c.connectTimeout"), text)
    }
  }

  test("a password comes from its option, a file or the environment, and is never printed") {
    assert(parse().password == "from environment")
    assert(parse("password" -> "").password == "")
    val file = Files.writeString(Files.createTempFile("isobar", ".password"), "s3cret\n")
    try {
      assert(parse("passwordFile" -> file.toString).password == "s3cret")
      assert(!parse("passwordFile" -> file.toString).toString.contains("s3cret"))
      assert(refused("passwordFile" -> file.toString, "password" -> "x").contains("both"))
    } finally Files.delete(file)
    assert(refused("passwordFile" -> "/nowhere/at/all").contains("cannot read /nowhere/at/all"))
  }

  test("an unknown key is named") {
    assert(refused("passwd" -> "x").contains("unknown option c.passwd"))
  }

  test("MySQL types, as the catalog spells them") {
    val known = Map(
      "tinyint(1)" -> ByteType,
      "INT(10) UNSIGNED" -> LongType,
      "mediumint unsigned" -> LongType,
      "decimal" -> DecimalType(10, 0),
      "decimal(5)" -> DecimalType(5, 0),
      "decimal( 38 , 30 )" -> DecimalType(38, 30),
      "longtext" -> StringType,
      "datetime" -> TimestampNTZType,
      "timestamp(3)" -> TimestampType,
      "blob" -> BinaryType,
      "binary(16)" -> BinaryType,
      "float" -> FloatType,
      "year" -> IntegerType,
      "bit(1)" -> LongType,
      "bit(63)" -> LongType,
      "bit(64)" -> DecimalType(20, 0),
      "time(6)" -> DayTimeIntervalType(),
      "json" -> StringType,
      "enum('a','(b)')" -> StringType,
      "SET('it''s', 'b\n')" -> StringType
    )
    known.foreach { case (text, expected) => assert(ColumnType.of(text).map(_.spark).contains(expected), text) }
    Seq(
      "decimal(39,0)",
      "decimal(5,6)",
      "decimal(0,0)",
      "double unsigned",
      "blob unsigned",
      "geometry",
      "enumeration",
      "enum",
      "bit(0)",
      "bit(65)",
      "float(7,4)",
      "",
      "int; drop",
      "decimal(99999999999,2)"
    ).foreach(text => assert(ColumnType.of(text).isEmpty, text))
  }
}
