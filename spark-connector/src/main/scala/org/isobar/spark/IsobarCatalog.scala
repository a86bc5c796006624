//! The catalog plug-in: databases as namespaces, tables as tables, all read-only.
//! Must never cache a table's description: a DataFrame built anew sees the table as it is.
package org.isobar.spark

import java.{util => ju}

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import org.isobar.spark.IsobarException.Code

/** Configured by `spark.sql.catalog.<name>=org.isobar.spark.IsobarCatalog` and options under that key. */
final class IsobarCatalog extends TableCatalog with SupportsNamespaces {
  private var catalogName = ""
  private var configured: Option[ConnectionOptions] = None

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalogName = name
    configured = Some(ConnectionOptions.parse(options, s"spark.sql.catalog.$name."))
  }

  override def name: String = catalogName

  private def options: ConnectionOptions =
    configured.getOrElse(throw new IllegalStateException("the catalog is not initialized"))

  private def client: IsobarClient = IsobarClient.open(options)

  // Namespaces: databases, one level.

  override def listNamespaces(): Array[Array[String]] = client.databases().map(Array(_)).toArray

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    if (namespace.isEmpty) listNamespaces()
    else {
      database(namespace)
      Array.empty
    }

  override def loadNamespaceMetadata(namespace: Array[String]): ju.Map[String, String] = {
    database(namespace)
    ju.Collections.emptyMap()
  }

  /** The database that a namespace names, if there is one. */
  private def database(namespace: Array[String]): String = namespace match {
    case Array(one) if client.databases().contains(one) => one
    case other => throw new NoSuchNamespaceException(catalogName +: other)
  }

  // Tables.

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val name = database(namespace)
    client.tables(name).map(table => Identifier.of(Array(name), table)).toArray
  }

  override def loadTable(ident: Identifier): Table = load(ident, None)

  /** Time travel: `VERSION AS OF '<snapshot token>'`. */
  override def loadTable(ident: Identifier, version: String): Table = load(ident, Some(version))

  override def loadTable(ident: Identifier, timestamp: Long): Table = throw new UnsupportedOperationException(
    s"table ${label(ident)}: TIMESTAMP AS OF is not supported, only VERSION AS OF '<snapshot token>'; " +
      "SELECT isobar_snapshot('10m') at the MySQL port gives a token"
  )

  private def load(ident: Identifier, version: Option[String]): Table = ident.namespace match {
    case Array(database) =>
      val description =
        try client.table(database, ident.name)
        catch { case failure: IsobarException if failure.code == Code.NotFound => throw missing(ident) }
      new IsobarTable(label(ident), description, options, Seq(ConnectionOptions.Snapshot), version)
    case _ => throw missing(ident)
  }

  private def missing(ident: Identifier): NoSuchTableException =
    new NoSuchTableException(catalogName +: ident.namespace.toSeq :+ ident.name)

  private def label(ident: Identifier): String = (catalogName +: ident.namespace :+ ident.name).mkString(".")

  // Everything that would change something.

  override def createTable(ident: Identifier, info: TableInfo): Table = ReadOnly.refuse(s"creating ${label(ident)}")

  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: ju.Map[String, String]
  ): Table = ReadOnly.refuse(s"creating ${label(ident)}")

  override def alterTable(ident: Identifier, changes: TableChange*): Table =
    ReadOnly.refuse(s"altering ${label(ident)}")

  override def dropTable(ident: Identifier): Boolean = ReadOnly.refuse(s"dropping ${label(ident)}")

  override def purgeTable(ident: Identifier): Boolean = ReadOnly.refuse(s"dropping ${label(ident)}")

  override def renameTable(from: Identifier, to: Identifier): Unit = ReadOnly.refuse(s"renaming ${label(from)}")

  override def createNamespace(namespace: Array[String], metadata: ju.Map[String, String]): Unit =
    ReadOnly.refuse(s"creating database ${namespace.mkString(".")}")

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    ReadOnly.refuse(s"altering database ${namespace.mkString(".")}")

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    ReadOnly.refuse(s"dropping database ${namespace.mkString(".")}")
}
