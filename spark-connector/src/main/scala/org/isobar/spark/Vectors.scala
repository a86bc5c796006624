//! Arrow vectors as Spark columns, without copying.
//! Must never reinterpret: an Arrow type that does not fit the declared Spark type has been refused before.
package org.isobar.spark

import java.math.BigInteger

import org.apache.arrow.vector._
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.types.UTF8String

object Vectors {

  /** The Spark column of a type over a vector of that type's Arrow type. */
  def column(columnType: ColumnType, vector: ValueVector): ColumnVector = vector match {
    case bytes: UInt1Vector => new UnsignedColumn(columnType.spark, bytes)(bytes.getValueAsLong(_))
    case shorts: UInt2Vector => new UnsignedColumn(columnType.spark, shorts)(shorts.getValueAsLong(_))
    case ints: UInt4Vector => new UnsignedColumn(columnType.spark, ints)(ints.getValueAsLong(_))
    case longs: UInt8Vector => new UnsignedColumn(columnType.spark, longs)(longs.get(_))
    case decimals: DecimalVector if decimals.getPrecision <= Decimal.MAX_LONG_DIGITS => new DecimalColumn(decimals)
    case other => new ArrowColumnVector(other)
  }
}

/** Common part: NULLs, life time, and refusal of every accessor that a subclass does not offer. */
private[spark] abstract class VectorColumn(sparkType: DataType, vector: ValueVector) extends ColumnVector(sparkType) {
  override def close(): Unit = vector.close()
  override def hasNull: Boolean = vector.getNullCount > 0
  override def numNulls: Int = vector.getNullCount
  override def isNullAt(row: Int): Boolean = vector.isNull(row)
  override def getBoolean(row: Int): Boolean = refuse("boolean")
  override def getByte(row: Int): Byte = refuse("byte")
  override def getShort(row: Int): Short = refuse("short")
  override def getInt(row: Int): Int = refuse("int")
  override def getLong(row: Int): Long = refuse("long")
  override def getFloat(row: Int): Float = refuse("float")
  override def getDouble(row: Int): Double = refuse("double")
  override def getArray(row: Int): ColumnarArray = refuse("array")
  override def getMap(row: Int): ColumnarMap = refuse("map")
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = refuse("decimal")
  override def getUTF8String(row: Int): UTF8String = refuse("string")
  override def getBinary(row: Int): Array[Byte] = refuse("binary")
  override def getChild(ordinal: Int): ColumnVector = refuse("child")

  private def refuse(what: String): Nothing =
    throw new UnsupportedOperationException(s"column of type $dataType has no $what values")
}

/** Unsigned integers, which Spark has not, as the next wider type. `read` gives the value's 64 bits. */
private[spark] final class UnsignedColumn(sparkType: DataType, vector: ValueVector)(read: Int => Long)
    extends VectorColumn(sparkType, vector) {
  override def getShort(row: Int): Short = read(row).toShort
  override def getInt(row: Int): Int = read(row).toInt
  override def getLong(row: Int): Long = read(row)

  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else {
      val bits = read(row)
      if (bits >= 0) Decimal.createUnsafe(bits, precision, scale)
      else Decimal(new java.math.BigDecimal(new BigInteger(java.lang.Long.toUnsignedString(bits))), precision, scale)
    }
}

/** Decimals of at most 18 digits: the low 64 bits of each 128-bit value are the whole number, so no BigDecimal is made
  * (about 1 ns a value instead of about 100).
  */
private[spark] final class DecimalColumn(vector: DecimalVector)
    extends VectorColumn(DecimalType(vector.getPrecision, vector.getScale), vector) {
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else {
      val low = vector.getDataBuffer.getLong(row.toLong * DecimalVector.TYPE_WIDTH) // decimal128 is little-endian
      Decimal.createUnsafe(low, precision, scale)
    }
}
