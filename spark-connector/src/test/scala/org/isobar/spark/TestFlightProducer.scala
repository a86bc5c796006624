//! One node of the test cluster: GetFlightInfo, DoGet and DoAction as the contract has them.
//! Must check every ticket and token it is given.
package org.isobar.spark

import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.arrow.flight._
import org.apache.arrow.vector.{FieldVector, VectorSchemaRoot}
import org.apache.arrow.vector.dictionary.{Dictionary, DictionaryProvider}
import org.apache.arrow.vector.types.pojo._

final class TestFlightProducer(cluster: TestCluster, node: Int) extends NoOpFlightProducer {
  import cluster.{fail, mapper}

  override def getFlightInfo(context: FlightProducer.CallContext, descriptor: FlightDescriptor): FlightInfo = typed {
    val scan = mapper.readTree(descriptor.getCommand).required("scan")
    cluster.scans.add(scan)
    val token = scan.required("snapshot").textValue
    val (timestamp, lease) = cluster.redeem(token)
    val table = cluster.at(scan.required("database").textValue, scan.required("table").textValue, timestamp)
    val columns = scan.required("columns").elements.asScala.map(name => columnOf(table, name.textValue)).toSeq
    val ports = cluster.ports
    val endpoints = (0 until cluster.parts).map { part =>
      // The preferred owner first, then the others.
      val owners = ports.indices.map(i => ports((part + i) % ports.length))
      val locations = cluster.otherLocations ++ owners.map(Location.forGrpcInsecure("127.0.0.1", _))
      val held = s"""{"replicas": ${locations.length - cluster.coordinators}}"""
      FlightEndpoint
        .builder(ticket(scan, table, part), locations: _*)
        .setAppMetadata(held.getBytes(UTF_8))
        .build()
    }
    val metadata = mapper.createObjectNode
      .put("snapshot", token)
      .put("read_ts", timestamp.toString)
      .put("lease", lease)
      .put("expires_ms", 0L)
      .put("table_id", table.id)
      .put("schema_version", table.schemaVersion.toString)
    val (records, bytes) = cluster.estimates
    FlightInfo
      .builder(new Schema(columns.map(_.field).asJava), descriptor, endpoints.asJava)
      .setRecords(records)
      .setBytes(bytes)
      .setAppMetadata(mapper.writeValueAsBytes(metadata))
      .build()
  }

  private def columnOf(table: TestVersion, name: String): TestColumn =
    table.columns
      .find(_.name == name)
      .getOrElse(throw fail(CallStatus.NOT_FOUND, s"TABLE_CHANGED: column $name does not exist"))

  private def ticket(scan: JsonNode, table: TestVersion, part: Int): Ticket = {
    val body = mapper.createObjectNode.put("part", part).put("id", table.id).set[JsonNode]("scan", scan)
    val text = mapper.writeValueAsString(body)
    val signature = if (cluster.spoil == TestSpoil.ForgedTicket) "0000000000000000" else cluster.sign(text)
    new Ticket(s"$signature$text".getBytes(UTF_8))
  }

  override def getStream(
      context: FlightProducer.CallContext,
      ticket: Ticket,
      listener: FlightProducer.ServerStreamListener
  ): Unit =
    try {
      stream(ticket, listener)
      if (listener.isCancelled) cluster.cancelled.incrementAndGet()
    } catch {
      case failure: FlightRuntimeException => listener.error(failure)
      case failure: Exception =>
        listener.error(CallStatus.INTERNAL.withDescription(failure.toString).toRuntimeException)
    }

  private def stream(ticket: Ticket, listener: FlightProducer.ServerStreamListener): Unit = {
    val (signature, text) = new String(ticket.getBytes, UTF_8).splitAt(16)
    if (cluster.sign(text) != signature) throw fail(CallStatus.UNAUTHORIZED, "TICKET_FORGED: not a ticket of ours")
    val body = mapper.readTree(text)
    val (scan, part) = (body.required("scan"), body.required("part").intValue)
    cluster.streams.add((node, part))
    val timestamp =
      try cluster.redeem(scan.required("snapshot").textValue)._1
      catch { case _: FlightRuntimeException => throw fail(CallStatus.UNAUTHORIZED, "TICKET_EXPIRED: its lease ended") }
    val (database, name) = (scan.required("database").textValue, scan.required("table").textValue)
    if (cluster.current(database, name).id != body.required("id").textValue)
      throw fail(CallStatus.INVALID_ARGUMENT, s"TABLE_CHANGED: table $database.$name was dropped")
    val table = cluster.at(database, name, timestamp)
    val columns = scan.required("columns").elements.asScala.map(name => columnOf(table, name.textValue)).toSeq
    send(part, columns, rowsOf(table, scan, part, columns), listener)
  }

  /** The rows of one part: filtered exactly, cut to the limit, projected. */
  private def rowsOf(table: TestVersion, scan: JsonNode, part: Int, columns: Seq[TestColumn]): Seq[Seq[Any]] = {
    val filter = new TestFilter(table.columns)
    val expression = scan.required("filter")
    val mine = table.rows.zipWithIndex.collect { case (row, index) if index % cluster.parts == part => row }
    val kept = if (expression.isNull) mine else mine.filter(filter.keeps(expression, _))
    val cut = if (scan.required("limit").isNull) kept else kept.take(scan.get("limit").intValue)
    val positions = columns.map(table.columns.indexOf(_))
    cut.map(row => positions.map(row))
  }

  private def send(
      part: Int,
      columns: Seq[TestColumn],
      rows: Seq[Seq[Any]],
      listener: FlightProducer.ServerStreamListener
  ): Unit = {
    val allocator = cluster.allocator.newChildAllocator(s"stream $node/$part", 0, Long.MaxValue)
    val root = VectorSchemaRoot.create(new Schema(columns.map(spoiled).asJava), allocator)
    val dictionaries = new DictionaryProvider.MapDictionaryProvider()
    try {
      if (cluster.spoil == TestSpoil.Dictionary) dictionaries.put(dictionaryFor(root, columns, allocator))
      listener.start(root, dictionaries)
      rows.grouped(cluster.batchRows).zipWithIndex.takeWhile(_ => !listener.isCancelled).foreach {
        case (batch, number) =>
          cluster.beforeBatch(node, part, number)
          fill(root, columns, batch)
          while (!listener.isReady && !listener.isCancelled) Thread.sleep(1)
          if (!listener.isCancelled) listener.putNext()
      }
      if (!listener.isCancelled) listener.completed()
    } finally {
      root.close()
      dictionaries.close()
      allocator.close()
    }
  }

  private def fill(root: VectorSchemaRoot, columns: Seq[TestColumn], rows: Seq[Seq[Any]]): Unit = {
    root.allocateNew()
    for ((column, at) <- columns.zipWithIndex; (row, number) <- rows.zipWithIndex) {
      val vector: FieldVector = root.getVector(at)
      val hole = cluster.spoil == TestSpoil.NullInNotNull && !column.nullable
      if (cluster.spoil == TestSpoil.Dictionary || cluster.spoil == TestSpoil.OtherType) vector.setNull(number)
      else column.write(vector, number, if (hole) null else row(at))
    }
    root.setRowCount(rows.length)
  }

  private def spoiled(column: TestColumn): Field = cluster.spoil match {
    case TestSpoil.Dictionary =>
      val index = new ArrowType.Int(32, true)
      new Field(column.name, new FieldType(true, index, new DictionaryEncoding(1L, false, index)), null)
    case TestSpoil.OtherType => new Field(column.name, FieldType.nullable(new ArrowType.Utf8), null)
    case TestSpoil.NullInNotNull => new Field(column.name, FieldType.nullable(column.field.getType), null)
    case _ => column.field
  }

  private def dictionaryFor(
      root: VectorSchemaRoot,
      columns: Seq[TestColumn],
      allocator: org.apache.arrow.memory.BufferAllocator
  ): Dictionary = {
    val values = columns.head.field.createVector(allocator)
    values.allocateNew()
    values.setValueCount(0)
    new Dictionary(values, root.getVector(0).getField.getDictionary)
  }

  override def doAction(
      context: FlightProducer.CallContext,
      action: Action,
      listener: FlightProducer.StreamListener[Result]
  ): Unit =
    try {
      val body = mapper.readTree(action.getBody)
      cluster.actions.add(action.getType -> body)
      listener.onNext(new Result(mapper.writeValueAsBytes(typed(answer(action.getType, body)))))
      listener.onCompleted()
    } catch { case failure: FlightRuntimeException => listener.onError(failure) }

  private def answer(name: String, body: JsonNode): JsonNode = name match {
    case "snapshot.take" => cluster.take(millis(body))
    case "snapshot.renew" => cluster.renew(body.required("snapshot").textValue, millis(body))
    case "snapshot.release" =>
      cluster.release(body.required("snapshot").textValue)
      mapper.createObjectNode
    case "catalog.databases" => mapper.valueToTree(cluster.databases.asJava)
    case "catalog.tables" => mapper.valueToTree(cluster.tablesOf(body.required("database").textValue).asJava)
    case "catalog.table" => describe(body.required("database").textValue, body.required("table").textValue)
    case other => throw fail(CallStatus.UNIMPLEMENTED, s"UNSUPPORTED: action $other")
  }

  private def describe(database: String, name: String): JsonNode = {
    val table = cluster.current(database, name)
    val result = mapper.createObjectNode.put("table_id", table.id).put("schema_version", table.schemaVersion.toString)
    val columns = result.putArray("columns")
    table.columns.foreach { column =>
      columns.addObject.put("name", column.name).put("type", column.mysqlType).put("nullable", column.nullable)
    }
    result.putArray("primary_key").add(table.columns.head.name)
    result.put("row_count", table.rows.length.toLong).put("bytes", -1L)
    result.putObject("columnar").put("replicas", 1).put("available", true)
    result
  }

  private def millis(body: JsonNode): Long = {
    val text = body.required("ttl").textValue
    val number = text.takeWhile(_.isDigit).toLong
    text.dropWhile(_.isDigit) match {
      case "ms" => number
      case "s" => number * 1000
      case "m" => number * 60_000
      case "h" => number * 3_600_000
      case other => throw fail(CallStatus.INVALID_ARGUMENT, s"INVALID: unit $other")
    }
  }

  /** A defect of a request shows as INVALID, not as a torn connection. */
  private def typed[T](work: => T): T =
    try work
    catch {
      case failure: FlightRuntimeException => throw failure
      case failure: Exception => throw fail(CallStatus.INVALID_ARGUMENT, s"INVALID: $failure")
    }
}
