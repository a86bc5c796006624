//! Spark's filters in the words of the Flight contract.
//! Must never translate a filter that the server would answer differently: what is left out, Spark evaluates itself.
package org.isobar.spark

import java.util.Base64

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.connector.expressions.{Expression, Literal, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Translates predicates over the columns of one table; both sides use SQL's three-valued logic.
  *
  * Not translated, because the two sides could differ:
  *   - a literal of another type than the column's: Spark has cast one of them, and only Spark knows how;
  *   - an integer outside the column's range: the server might refuse it;
  *   - a DOUBLE or FLOAT compared with NaN, an infinity or zero: NaN order, JSON, and -0.0 = 0.0 are not the same
  *     everywhere; or with a number that not every reader of JSON takes for the same;
  *   - a string that is not valid UTF-8, and strings of any collation but UTF8_BINARY;
  *   - a column of a type that the server compares otherwise (JSON).
  */
final class PredicateTranslator(columns: Map[String, ColumnType]) {

  /** The contract's expression for a whole predicate, or None. */
  def translate(predicate: Predicate): Option[ObjectNode] = {
    val children = predicate.children.toSeq
    predicate.name match {
      case "AND" => all("and", children)
      case "OR" => all("or", children)
      case "NOT" => nested(children).filter(_.length == 1).map(args => node("not").set[ObjectNode]("arg", args.head))
      case "=" | "<=>" | "<>" | "<" | "<=" | ">" | ">=" => comparison(predicate.name, children)
      case "IN" => in(children)
      case "IS_NULL" => column(children).map(name => node("is_null").put("column", name))
      case "IS_NOT_NULL" => column(children).map(name => node("is_not_null").put("column", name))
      case "STARTS_WITH" => startsWith(children)
      case _ => None
    }
  }

  private def node(op: String): ObjectNode = Protocol.obj().put("op", op)

  private def all(op: String, children: Seq[Expression]): Option[ObjectNode] = nested(children).map { args =>
    val result = node(op)
    val list = result.putArray("args")
    args.foreach(list.add)
    result
  }

  /** All of them, or none: leaving one out under OR or NOT would change the answer. */
  private def nested(children: Seq[Expression]): Option[Seq[ObjectNode]] = {
    val translated = children.map {
      case predicate: Predicate => translate(predicate)
      case _ => None
    }
    Option.when(translated.nonEmpty && translated.forall(_.isDefined))(translated.flatten)
  }

  private def comparison(op: String, children: Seq[Expression]): Option[ObjectNode] = children match {
    case Seq(reference: NamedReference, value: Literal[_]) => compare(op, reference, value)
    case Seq(value: Literal[_], reference: NamedReference) => compare(flipped(op), reference, value)
    case _ => None
  }

  private def flipped(op: String): String = op match {
    case "<" => ">"
    case "<=" => ">="
    case ">" => "<"
    case ">=" => "<="
    case same => same
  }

  private def compare(op: String, reference: NamedReference, value: Literal[_]): Option[ObjectNode] =
    for {
      name <- column(Seq(reference))
      literal <- literal(columns(name), value)
    } yield node(op).put("column", name).set[ObjectNode]("value", literal)

  private def in(children: Seq[Expression]): Option[ObjectNode] = column(children.take(1)).flatMap { name =>
    val values = children.drop(1).map {
      case value: Literal[_] => literal(columns(name), value)
      case _ => None
    }
    Option.when(values.nonEmpty && values.forall(_.isDefined)) {
      val result = node("in").put("column", name)
      val list = result.putArray("values")
      values.flatten.foreach(list.add)
      result
    }
  }

  private def startsWith(children: Seq[Expression]): Option[ObjectNode] = children match {
    case Seq(reference: NamedReference, value: Literal[_]) if value.dataType == StringType =>
      compare("starts_with", reference, value)
    case _ => None
  }

  private def column(children: Seq[Expression]): Option[String] = children match {
    case Seq(reference: NamedReference) =>
      reference.fieldNames match {
        case Array(name) if columns.contains(name) => Some(name)
        case _ => None
      }
    case _ => None
  }

  /** A literal of exactly the column's type. A NULL literal is left to Spark, which folds it away anyway. */
  private def literal(column: ColumnType, literal: Literal[_]): Option[ObjectNode] =
    if (!column.compared || literal.dataType != column.spark || literal.value == null) None
    else
      (column.spark, literal.value: Any) match {
        case (_, value: Decimal) if column.integers.isDefined =>
          Option.when(value.toJavaBigDecimal.stripTrailingZeros.scale <= 0)(value.toScalaBigInt).flatMap(int(column, _))
        case (_, value: Decimal) => Some(Protocol.obj().put("decimal", value.toJavaBigDecimal.toPlainString))
        case (ByteType | ShortType | IntegerType | LongType, value: Number) => int(column, BigInt(value.longValue))
        case (DoubleType, value: Double) => double(value)
        // To a double and back a float is itself.
        case (FloatType, value: Float) => double(value.toDouble)
        case (BinaryType, value: Array[Byte]) =>
          Some(Protocol.obj().put("bytes", Base64.getEncoder.encodeToString(value)))
        case (_: DayTimeIntervalType, value: Long) => Some(Protocol.obj().put("time", value.toString))
        case (StringType, value: UTF8String) => Option.when(value.isValid)(Protocol.obj().put("string", value.toString))
        case (DateType, value: Int) => Some(Protocol.obj().put("date", value))
        case (TimestampNTZType, value: Long) => Some(Protocol.obj().put("datetime", value.toString))
        case (TimestampType, value: Long) => Some(Protocol.obj().put("timestamp", value.toString))
        case _ => None
      }

  /** A number of JSON that is read without rounding: whole and powers of ten are exact in a double, so their product or
    * quotient is the nearest double to it, and fast readers get no others right.
    */
  private def double(value: Double): Option[ObjectNode] =
    Option
      .when(!value.isNaN && !value.isInfinite && value != 0.0)(BigDecimal(value).bigDecimal.stripTrailingZeros)
      .collect {
        case digits if digits.unscaledValue.bitLength <= 53 && digits.scale.abs <= 22 =>
          Protocol.obj().put("double", value)
      }

  private def int(column: ColumnType, value: BigInt): Option[ObjectNode] = column.integers.collect {
    case (smallest, largest) if value >= smallest && value <= largest => Protocol.obj().put("int", value.toString)
  }
}
