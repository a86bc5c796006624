//! MySQL column types, as the catalog spells them, and what they are in Spark and on the wire.
//! Must never guess: a type that is not listed here is refused by name.
package org.isobar.spark

import java.util.Locale

import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.ArrowType
import org.apache.spark.sql.types._

/** A column type that Spark can hold.
  *
  * @param spark
  *   Spark's type; unsigned integers get the next wider one
  * @param arrow
  *   the only Arrow type that the stream may carry for it
  * @param integers
  *   smallest and largest value, for integer columns
  * @param compared
  *   whether the server compares values of this type as Spark does; if not, only IS NULL is pushed
  */
final case class ColumnType(
    spark: DataType,
    arrow: ArrowType,
    integers: Option[(BigInt, BigInt)] = None,
    compared: Boolean = true
)

/** A column as the catalog describes it. */
final case class ColumnInfo(name: String, mysqlType: String, nullable: Boolean)

object ColumnType {
  private val written = """([a-z]+)\s*(?:\(\s*(\d{1,6})\s*(?:,\s*(\d{1,6})\s*)?\))?\s*(unsigned)?""".r
  private val labelled = """(?s)(?:enum|set)\s*\(.*\)""".r

  private val utf8 = ColumnType(StringType, ArrowType.Utf8.INSTANCE)

  /** MySQL's normal form of a document, letter by letter. Not VARIANT: to make one takes time in every read, needed or
    * not, and loses the text; `parse_json` makes it of a column where it is wanted. Not compared: the server compares
    * documents by value, Spark compares texts.
    */
  private val json = ColumnType(StringType, ArrowType.LargeUtf8.INSTANCE, compared = false)

  private val bytes = ColumnType(BinaryType, ArrowType.Binary.INSTANCE)

  /** A span of up to 838:59:59 on both sides of zero. Not Spark's TIME, which is a time of day. */
  private val time = ColumnType(DayTimeIntervalType(), new ArrowType.Duration(TimeUnit.MICROSECOND))

  private def floating(spark: DataType, precision: FloatingPointPrecision): ColumnType =
    ColumnType(spark, new ArrowType.FloatingPoint(precision))

  /** The type for a MySQL type text such as `decimal(12,2)` or `bigint unsigned`; None if Spark cannot hold it. */
  def of(mysqlType: String): Option[ColumnType] = mysqlType.trim.toLowerCase(Locale.ROOT) match {
    case written(name, first, second, unsigned) =>
      (name, unsigned != null) match {
        case ("tinyint", isUnsigned) => Some(integer(8, isUnsigned, ByteType, ShortType))
        case ("smallint", isUnsigned) => Some(integer(16, isUnsigned, ShortType, IntegerType))
        case ("mediumint", isUnsigned) => Some(integer(24, isUnsigned, IntegerType, LongType))
        case ("int" | "integer", isUnsigned) => Some(integer(32, isUnsigned, IntegerType, LongType))
        case ("bigint", isUnsigned) => Some(integer(64, isUnsigned, LongType, DecimalType(20, 0)))
        case ("double", false) => Some(floating(DoubleType, FloatingPointPrecision.DOUBLE))
        case ("float", false) if first == null => Some(floating(FloatType, FloatingPointPrecision.SINGLE))
        case ("year", false) => Some(year)
        case ("bit", false) => bit(Option(first))
        case ("decimal" | "numeric", false) => decimal(Option(first), Option(second))
        case ("char" | "varchar" | "text" | "tinytext" | "mediumtext" | "longtext", false) => Some(utf8)
        case ("binary" | "varbinary" | "blob" | "tinyblob" | "mediumblob" | "longblob", false) => Some(bytes)
        case ("json", false) => Some(json)
        case ("time", false) => Some(time)
        case ("date", false) => Some(ColumnType(DateType, new ArrowType.Date(DateUnit.DAY)))
        case ("datetime", false) =>
          Some(ColumnType(TimestampNTZType, new ArrowType.Timestamp(TimeUnit.MICROSECOND, null)))
        case ("timestamp", false) =>
          Some(ColumnType(TimestampType, new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC")))
        case _ => None
      }
    case labelled() => Some(utf8)
    case _ => None
  }

  /** The type of a column, or an error at planning that names column and type. */
  def require(table: String, column: ColumnInfo): ColumnType = of(column.mysqlType).getOrElse(
    throw IsobarException(
      IsobarException.Code.Unsupported,
      s"table $table: column ${column.name} has type ${column.mysqlType}, which Spark cannot hold; " +
        "select the other columns by name, or CAST it in SQL at the MySQL port"
    )
  )

  private def integer(bits: Int, unsigned: Boolean, signedType: DataType, unsignedType: DataType): ColumnType = {
    val wire = if (bits == 24) 32 else bits
    val values =
      if (unsigned) (BigInt(0), (BigInt(1) << bits) - 1)
      else (-(BigInt(1) << (bits - 1)), (BigInt(1) << (bits - 1)) - 1)
    ColumnType(if (unsigned) unsignedType else signedType, new ArrowType.Int(wire, !unsigned), Some(values))
  }

  /** The server's numbers are unsigned: one bit short of 64 they fit Spark's BIGINT, which has operators for bits. */
  private def bit(width: Option[String]): Option[ColumnType] = {
    val bits = width.fold(1)(_.toInt)
    Option.when(bits >= 1 && bits <= 64) {
      val spark = if (bits < 64) LongType else DecimalType(20, 0)
      ColumnType(spark, new ArrowType.Int(64, false), Some((BigInt(0), (BigInt(1) << bits) - 1)))
    }
  }

  /** 0 and 1901 to 2155. */
  private def year: ColumnType =
    ColumnType(IntegerType, new ArrowType.Int(16, false), Some((BigInt(0), BigInt(2155))))

  /** MySQL allows 65 digits; Spark and decimal128 hold 38. */
  private def decimal(precision: Option[String], scale: Option[String]): Option[ColumnType] = {
    val digits = precision.map(_.toInt).getOrElse(10)
    val fraction = scale.map(_.toInt).getOrElse(0)
    Option.when(digits >= 1 && digits <= DecimalType.MAX_PRECISION && fraction <= digits) {
      ColumnType(DecimalType(digits, fraction), new ArrowType.Decimal(digits, fraction, 128))
    }
  }
}
