//! The JSON messages of the Flight server: what is asked, and what the answers say.
//! Must never open a connection; and must never accept an answer of another shape than the contract's.
package org.isobar.spark

import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.arrow.vector.types.pojo.Schema

/** A table as the catalog describes it; `rows` and `bytes` are estimates, -1 if unknown. */
final case class TableDescription(
    database: String,
    name: String,
    id: String,
    schemaVersion: String,
    columns: Seq[ColumnInfo],
    primaryKey: Seq[String],
    rows: Long,
    bytes: Long,
    columnarReplicas: Int
) {
  def fullName: String = s"$database.$name"
}

/** A snapshot that the server has granted; it may be read until `expiresMillis` (Unix time, the server's clock). */
final case class SnapshotGrant(token: String, readTimestamp: String, expiresMillis: Long) {
  override def toString: String = s"SnapshotGrant(read timestamp $readTimestamp)"
}

/** What GetFlightInfo is asked for. `filter` is an expression of the contract, or None. */
final case class ScanRequest(
    database: String,
    table: String,
    columns: Seq[String],
    filter: Option[ObjectNode],
    snapshot: String,
    limit: Option[Int]
)

/** A part of a table: the ticket to read it with, and where that is redeemed, the preferred node first. The first
  * `replicas` of the locations hold all of the part; the others fetch it from those that do.
  */
final case class ScanPart(ticket: Array[Byte], locations: Seq[Endpoint], replicas: Int)

/** What GetFlightInfo answers; `records` and `bytes` are estimates, -1 if unknown. */
final case class ScanPlan(
    schema: Schema,
    parts: Seq[ScanPart],
    records: Long,
    bytes: Long,
    readTimestamp: String,
    tableId: String
)

object Protocol {
  private val mapper = new ObjectMapper()

  def obj(): ObjectNode = mapper.createObjectNode()

  def bytes(node: JsonNode): Array[Byte] = mapper.writeValueAsBytes(node)

  /** The descriptor's command for a scan, paid for by a resource group. */
  def scanCommand(request: ScanRequest, resourceGroup: Option[String]): Array[Byte] = {
    val scan = obj().put("database", request.database).put("table", request.table)
    val columns = scan.putArray("columns")
    request.columns.foreach(columns.add)
    request.filter.fold(scan.putNull("filter"))(scan.set[ObjectNode]("filter", _))
    scan.put("snapshot", request.snapshot)
    request.limit.fold(scan.putNull("limit"))(n => scan.put("limit", n))
    // Servers of older releases know of no groups.
    resourceGroup.foreach(scan.put("resource_group", _))
    bytes(obj().set[ObjectNode]("scan", scan))
  }

  def strings(body: Array[Byte]): Seq[String] = reading("a list of names", body) { node =>
    if (!node.isArray) throw new IllegalArgumentException("not a list")
    node.elements.asScala.map(_.textValue).toSeq
  }

  def snapshot(body: Array[Byte]): SnapshotGrant = reading("a snapshot", body) { node =>
    SnapshotGrant(text(node, "snapshot"), text(node, "read_ts"), number(node, "expires_ms"))
  }

  def table(database: String, name: String, body: Array[Byte]): TableDescription =
    reading("a table's description", body) { node =>
      TableDescription(
        database,
        name,
        text(node, "table_id"),
        text(node, "schema_version"),
        node
          .required("columns")
          .elements
          .asScala
          .map(column =>
            ColumnInfo(text(column, "name"), text(column, "type"), column.required("nullable").booleanValue)
          )
          .toSeq,
        node.required("primary_key").elements.asScala.map(_.textValue).toSeq,
        number(node, "row_count"),
        number(node, "bytes"),
        node.required("columnar").required("replicas").intValue
      )
    }

  /** Read timestamp and table id from the `app_metadata` of a FlightInfo. */
  def scanMetadata(body: Array[Byte]): (String, String) = reading("a scan's metadata", body) { node =>
    (text(node, "read_ts"), text(node, "table_id"))
  }

  /** How many of a part's locations hold it, from the `app_metadata` of its endpoint; all of them if it does not say.
    */
  def replicas(body: Array[Byte], locations: Int): Int =
    if (body == null || body.isEmpty) locations
    else reading("a part's metadata", body)(node => number(node, "replicas").max(0L).min(locations.toLong).toInt)

  private def reading[T](what: String, body: Array[Byte])(read: JsonNode => T): T =
    try read(mapper.readTree(new String(body, UTF_8)))
    catch {
      // The body itself stays out of the message: it may hold a token.
      case NonFatal(failure) =>
        throw IsobarException(
          IsobarException.Code.Protocol,
          s"the server's answer is not $what (${body.length} bytes): ${failure.getClass.getSimpleName}"
        )
    }

  /** Numbers that do not fit a double travel as strings, so both spellings are taken. */
  private def text(node: JsonNode, field: String): String = node.required(field).asText

  private def number(node: JsonNode, field: String): Long = {
    val value = node.required(field)
    if (value.isNumber) value.longValue else value.asText.toLong
  }
}
