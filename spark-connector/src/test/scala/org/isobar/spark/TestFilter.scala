//! Exact evaluation of the contract's filter expressions, in SQL's three-valued logic.
//! Must refuse what the contract does not know: a connector that sends it has a defect.
package org.isobar.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.util
import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

final class TestFilter(columns: Seq[TestColumn]) {
  private val positions = columns.map(_.name).zipWithIndex.toMap
  private val byName = columns.map(column => column.name -> column).toMap

  def keeps(expression: JsonNode, row: Seq[Any]): Boolean = evaluate(expression, row).contains(true)

  /** None is SQL's UNKNOWN. */
  private def evaluate(node: JsonNode, row: Seq[Any]): Option[Boolean] = node.required("op").textValue match {
    case "and" =>
      val parts = node.required("args").elements.asScala.map(evaluate(_, row)).toSeq
      if (parts.contains(Some(false))) Some(false) else if (parts.contains(None)) None else Some(true)
    case "or" =>
      val parts = node.required("args").elements.asScala.map(evaluate(_, row)).toSeq
      if (parts.contains(Some(true))) Some(true) else if (parts.contains(None)) None else Some(false)
    case "not" => evaluate(node.required("arg"), row).map(!_)
    case "is_null" => Some(value(node, row) == null)
    case "is_not_null" => Some(value(node, row) != null)
    case "in" =>
      Option(value(node, row)).map { value =>
        node.required("values").elements.asScala.exists(literal => compare(value, read(node, literal)) == 0)
      }
    case "starts_with" =>
      Option(value(node, row)).map(_.asInstanceOf[String].startsWith(read(node, node.required("value")).toString))
    case "<=>" => Some(Option(value(node, row)).exists(compare(_, read(node, node.required("value"))) == 0))
    case op =>
      Option(value(node, row)).map { value =>
        val order = compare(value, read(node, node.required("value")))
        op match {
          case "=" => order == 0
          case "<>" => order != 0
          case "<" => order < 0
          case "<=" => order <= 0
          case ">" => order > 0
          case ">=" => order >= 0
          case other => throw new IllegalArgumentException(s"unknown operator $other")
        }
      }
  }

  private def value(node: JsonNode, row: Seq[Any]): Any = row(positions(node.required("column").textValue))

  /** The literal, which must be of the column's own kind. */
  private def read(node: JsonNode, literal: JsonNode): Any = {
    val column = byName(node.required("column").textValue)
    val spelled = literal.fieldNames.asScala.toSeq
    val expected = column.kind match {
      case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "bit" => "int"
      case "float" => "double"
      case "binary" | "varbinary" | "longblob" => "bytes"
      case "json" => throw new IllegalArgumentException(s"column ${column.name} is JSON, which no literal is")
      case "double" | "time" | "decimal" | "date" | "datetime" | "timestamp" => column.kind
      case _ => "string"
    }
    if (spelled != Seq(expected)) {
      throw new IllegalArgumentException(s"column ${column.name} of type ${column.mysqlType} against $literal")
    }
    val content = literal.get(expected)
    expected match {
      case "int" => BigInt(content.textValue)
      case "decimal" => BigDecimal(content.textValue)
      case "double" if content.isNumber && column.kind == "float" => content.doubleValue.toFloat
      case "double" if content.isNumber => content.doubleValue
      case "bytes" => Base64.getDecoder.decode(content.textValue)
      case "date" if content.isIntegralNumber => content.longValue
      case "datetime" | "timestamp" | "time" => content.textValue.toLong
      case "string" => content.textValue
      case _ => throw new IllegalArgumentException(s"malformed literal $literal")
    }
  }

  private def compare(left: Any, right: Any): Int = (left, right) match {
    case (a: BigInt, b: BigInt) => a.compare(b)
    case (a: BigDecimal, b: BigDecimal) => a.compare(b)
    case (a: Double, b: Double) => java.lang.Double.compare(a, b) // total order, as arrow-rs has it: -0.0 < 0.0
    case (a: Float, b: Float) => java.lang.Float.compare(a, b)
    case (a: Array[Byte], b: Array[Byte]) => util.Arrays.compareUnsigned(a, b)
    case (a: Long, b: Long) => a.compare(b)
    case (a: String, b: String) => util.Arrays.compareUnsigned(a.getBytes(UTF_8), b.getBytes(UTF_8))
    case _ => throw new IllegalArgumentException(s"cannot compare ${left.getClass} with ${right.getClass}")
  }
}
