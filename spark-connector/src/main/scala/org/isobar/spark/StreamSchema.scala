//! The check that a stream carries exactly the columns that were planned.
//! Must run before the first batch: a vector of another type would be read as wrong values, without an error.
package org.isobar.spark

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.{Field, Schema}

import org.isobar.spark.IsobarException.Code

object StreamSchema {

  /** Compares names, order and types; refuses dictionaries.
    *
    * @throws IsobarException
    *   TABLE_CHANGED if columns differ, PROTOCOL for a dictionary
    */
  def check(table: String, columns: Seq[ColumnInfo], schema: Schema): Unit = {
    val fields = schema.getFields.asScala.toSeq
    if (fields.map(_.getName) != columns.map(_.name)) {
      val (wanted, got) = (columns.map(_.name).mkString(", "), fields.map(_.getName).mkString(", "))
      throw IsobarException(Code.TableChanged, s"table $table: asked for columns [$wanted], the server has [$got]")
    }
    columns.zip(fields).foreach { case (column, field) => checkField(table, column, field) }
  }

  private def checkField(table: String, column: ColumnInfo, field: Field): Unit = {
    val expected = ColumnType.require(table, column).arrow
    if (field.getDictionary != null) {
      val detail = s"table $table, column ${column.name}: the stream is dictionary-encoded, which Spark would misread"
      throw IsobarException(Code.Protocol, detail)
    }
    if (field.getType != expected) {
      val detail =
        s"table $table, column ${column.name} of type ${column.mysqlType}: expected $expected in the stream, " +
          s"the server has ${field.getType}"
      throw IsobarException(Code.TableChanged, detail)
    }
  }
}
