//! Planning of one scan on the driver: what is pushed down, what it costs, which tickets are read where.
//! Must never show a password, a login token or a snapshot token.
package org.isobar.spark

import java.util.OptionalLong

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.types.StructType

import org.isobar.spark.IsobarException.Code

/** Collects what Spark pushes down. */
final class IsobarScanBuilder(table: IsobarTable, client: IsobarClient, snapshot: QuerySnapshot)
    extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownV2Filters
    with SupportsPushDownLimit {
  private var columns: Seq[ColumnInfo] = table.description.columns
  private var pushed: Seq[(Predicate, ObjectNode)] = Nil
  private var limit: Option[Int] = None

  override def pruneColumns(required: StructType): Unit = {
    val byName = table.description.columns.map(column => column.name -> column).toMap
    columns = required.fieldNames.toSeq.map(name =>
      byName.getOrElse(name, throw IsobarException(Code.NotFound, s"table ${table.label} has no column $name"))
    )
  }

  /** Keeps what the server evaluates with the same meaning and returns the rest, for Spark to evaluate. */
  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] = {
    val translator = new PredicateTranslator(table.types)
    val (taken, left) = predicates.toSeq.map(predicate => predicate -> translator.translate(predicate)).partition {
      case (_, translated) => translated.isDefined
    }
    pushed = taken.collect { case (predicate, Some(translated)) => predicate -> translated }
    left.map { case (predicate, _) => predicate }.toArray
  }

  override def pushedPredicates: Array[Predicate] = pushed.map { case (predicate, _) => predicate }.toArray

  /** Every part returns at most that many rows; Spark cuts once more. */
  override def pushLimit(rows: Int): Boolean = {
    limit = Some(rows)
    true
  }

  override def isPartiallyPushed: Boolean = true

  override def build(): Scan = {
    // Here and not earlier: what Spark cannot hold is an error only where it is asked for.
    columns.foreach(ColumnType.require(table.description.fullName, _))
    new IsobarScan(table, client, snapshot, columns, pushed, limit)
  }
}

/** A planned scan. The server is asked once, when statistics or partitions are first needed. */
final class IsobarScan(
    private val table: IsobarTable,
    client: IsobarClient,
    private val snapshot: QuerySnapshot,
    private val columns: Seq[ColumnInfo],
    private val pushed: Seq[(Predicate, ObjectNode)],
    private val limit: Option[Int]
) extends Scan
    with Batch
    with SupportsReportStatistics {
  private var planned: Option[(String, ScanPlan)] = None

  override def readSchema: StructType = table.schemaOf(columns)

  override def toBatch: Batch = this

  // Always columnar: otherwise Spark would ask every partition, which means planning before it is known to be needed.
  override def columnarSupportMode: Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED

  override def supportedCustomMetrics: Array[CustomMetric] = Metrics.all

  override def estimateStatistics: Statistics = {
    val plan = planAt(snapshot.token())
    val rows = if (plan.records >= 0) plan.records else table.description.rows
    val size = if (plan.bytes >= 0) plan.bytes else if (rows >= 0) rows * readSchema.defaultSize else -1L
    new Statistics {
      override def sizeInBytes: OptionalLong = known(size)
      override def numRows: OptionalLong = known(rows)
    }
  }

  private def known(value: Long): OptionalLong = if (value >= 0) OptionalLong.of(value) else OptionalLong.empty

  override def planInputPartitions(): Array[InputPartition] =
    planAt(snapshot.pin()).parts.map(part => new IsobarPartition(part): InputPartition).toArray

  override def createReaderFactory(): PartitionReaderFactory = new IsobarReaderFactory(
    new ReadTask(
      table.label,
      columns,
      client.freshBearer(), // fresh, so that it lives for as long as it can
      client.options.connectTimeoutMillis,
      client.options.requestTimeoutMillis
    )
  )

  private def planAt(token: String): ScanPlan = synchronized {
    planned match {
      case Some((made, plan)) if made == token => plan
      case _ =>
        val plan = client.scan(request(token))
        check(plan)
        planned = Some(token -> plan)
        plan
    }
  }

  private def request(token: String): ScanRequest = ScanRequest(
    table.description.database,
    table.description.name,
    columns.map(_.name),
    filter,
    token,
    limit
  )

  private def filter: Option[ObjectNode] = pushed.map { case (_, expression) => expression } match {
    case Seq() => None
    case Seq(one) => Some(one)
    case several =>
      val result = Protocol.obj().put("op", "and")
      val arguments = result.putArray("args")
      several.foreach(arguments.add)
      Some(result)
  }

  /** The table must still be the one that Spark analysed. */
  private def check(plan: ScanPlan): Unit = {
    if (plan.tableId != table.description.id) {
      val detail = s"table ${table.label} was dropped and created again since the query was analysed"
      throw IsobarException(Code.TableChanged, detail)
    }
    StreamSchema.check(table.label, columns, plan.schema)
  }

  override def description: String = {
    val parts = Seq(
      Some(s"Isobar ${table.label}"),
      Some(s"columns: [${columns.map(_.name).mkString(", ")}]"),
      Some(s"pushed filters: [${pushed.map { case (predicate, _) => predicate.toString }.mkString(", ")}]"),
      limit.map(rows => s"limit of each part: $rows"),
      Some(s"snapshot: ${if (snapshot.isNamed) "named by the user" else "this query's"}$readTimestamp")
    )
    parts.flatten.mkString(" ")
  }

  private def readTimestamp: String = synchronized {
    planned.fold("") { case (_, plan) => s" at ${plan.readTimestamp}, parts: ${plan.parts.length}" }
  }

  // Spark reads one of two equal scans once and uses the result twice.
  override def equals(other: Any): Boolean = other match {
    case that: IsobarScan =>
      table == that.table && columns == that.columns && filter == that.filter && limit == that.limit &&
      (snapshot.eq(that.snapshot) || (snapshot.isNamed && snapshot.fixedToken == that.snapshot.fixedToken))
    case _ => false
  }

  override def hashCode: Int = (table, columns, limit).hashCode
}
