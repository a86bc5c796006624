//! `spark.read.format("isobar")`: one table without a configured catalog.
//! Must behave like the catalog's tables in everything; it only finds its options elsewhere.
package org.isobar.spark

import java.{util => ju}

import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Options: `table` (`database.table`) and those of the catalog. */
final class IsobarSource extends TableProvider with DataSourceRegister {
  override def shortName(): String = IsobarSource.Name

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    load(options).wholeSchema

  override def getTable(schema: StructType, partitioning: Array[Transform], options: ju.Map[String, String]): Table =
    load(new CaseInsensitiveStringMap(options))

  private def load(options: CaseInsensitiveStringMap): IsobarTable = {
    val parsed = ConnectionOptions.parse(options, "of format isobar: ", Seq(IsobarSource.TableKey))
    Option(options.get(IsobarSource.TableKey)).map(_.trim.split('.')) match {
      case Some(Array(database, name)) if database.nonEmpty && name.nonEmpty =>
        val description = IsobarClient.open(parsed).table(database, name)
        new IsobarTable(
          s"${IsobarSource.Name}.${description.fullName}",
          description,
          parsed,
          ConnectionOptions.keys :+ IsobarSource.TableKey,
          None
        )
      case _ =>
        throw new IllegalArgumentException("option table of format isobar must name one table, as database.table")
    }
  }
}

object IsobarSource {
  val Name = "isobar"
  val TableKey = "table"
}
