//! A table as Spark sees it: its columns, and the start of every scan. Read-only.
//! Must never touch the network: it holds what the catalog has already said.
package org.isobar.spark

import java.{util => ju}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.{Column, SupportsDeleteV2, SupportsRead, SupportsWrite}
import org.apache.spark.sql.connector.catalog.{Table, TableCapability}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.types.{DataType, StringType, StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** @param label
  *   how Spark names the table, e.g. `isobar.d.t`
  * @param readKeys
  *   options that one read may carry
  * @param version
  *   snapshot token from VERSION AS OF
  */
final class IsobarTable(
    val label: String,
    val description: TableDescription,
    val options: ConnectionOptions,
    readKeys: Seq[String],
    version: Option[String]
) extends Table
    with SupportsRead
    with SupportsWrite
    with SupportsDeleteV2 {

  /** The columns that Spark can hold, with their types. */
  val types: Map[String, ColumnType] =
    description.columns.flatMap(column => ColumnType.of(column.mysqlType).map(column.name -> _)).toMap

  override def name: String = label

  /** Spark's schema of columns that are to be read; an error that names the first that Spark cannot hold. */
  def schemaOf(some: Seq[ColumnInfo]): StructType = StructType(some.map { column =>
    StructField(column.name, ColumnType.require(description.fullName, column).spark, column.nullable)
  })

  /** Spark's schema of all columns. */
  def wholeSchema: StructType = StructType(description.columns.map { column =>
    val field = StructField(column.name, shownType(column), column.nullable)
    if (types.contains(column.name)) field else field.withComment(unreadable(column))
  })

  override def id: String = description.id

  override def columns: Array[Column] = description.columns.map { column =>
    val comment = if (types.contains(column.name)) null else unreadable(column)
    Column.create(column.name, shownType(column), column.nullable, comment, null)
  }.toArray

  /** What Spark cannot hold is shown as a text, so that the other columns can be read: a query that needs it fails when
    * it is planned.
    */
  private def shownType(column: ColumnInfo): DataType = types.get(column.name).fold[DataType](StringType)(_.spark)

  private def unreadable(column: ColumnInfo): String = s"${column.mysqlType}: cannot be read in Spark"

  override def properties: ju.Map[String, String] = Map(
    "primary_key" -> description.primaryKey.mkString(","),
    "columnar_replicas" -> description.columnarReplicas.toString,
    "schema_version" -> description.schemaVersion
  ).asJava

  // Writing is declared so that Spark asks, and the answer can say where to write instead.
  override def capabilities: ju.Set[TableCapability] = ju.Set.of(
    TableCapability.BATCH_READ,
    TableCapability.BATCH_WRITE,
    TableCapability.TRUNCATE,
    TableCapability.OVERWRITE_BY_FILTER,
    TableCapability.OVERWRITE_DYNAMIC,
    TableCapability.ACCEPT_ANY_SCHEMA
  )

  override def newScanBuilder(read: CaseInsensitiveStringMap): ScanBuilder = {
    ConnectionOptions.rejectUnknown(read, s"of table $label: ", readKeys ++ IsobarTable.sparksOwn)
    val client = IsobarClient.open(options)
    val wanted = Option(read.get(ConnectionOptions.Snapshot)).map(_.trim).filter(_.nonEmpty)
    val snapshot = version.orElse(wanted).orElse(options.snapshot) match {
      case Some(token) => QuerySnapshot.named(client, token)
      case None => QuerySnapshot.ofThisQuery(client)
    }
    new IsobarScanBuilder(this, client, snapshot)
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = ReadOnly.refuse(s"writing to $label")

  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = ReadOnly.refuse(s"deleting from $label")

  override def deleteWhere(predicates: Array[Predicate]): Unit = ReadOnly.refuse(s"deleting from $label")

  // Spark compares tables to find out whether cached data answers a query.
  override def equals(other: Any): Boolean = other match {
    case that: IsobarTable =>
      label == that.label && description.id == that.description.id && options == that.options &&
      description.schemaVersion == that.description.schemaVersion && tokenOf == that.tokenOf
    case _ => false
  }

  override def hashCode: Int = (label, description.id).hashCode

  private def tokenOf: Option[String] = version
}

object IsobarTable {

  /** Spark leaves these among a read's options after it has acted on them. */
  private val sparksOwn = Seq("versionAsOf", "timestampAsOf")
}

/** The one answer to everything that would change data. */
private[spark] object ReadOnly {
  def refuse(what: String): Nothing = throw new UnsupportedOperationException(
    s"$what is not possible from Spark, which reads Isobar's columnar replicas only: use SQL at the cluster's MySQL " +
      "port instead, e.g. mysql --host=127.0.0.1 --port=4000 --user=root"
  )
}
