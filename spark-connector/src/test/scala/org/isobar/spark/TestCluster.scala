//! A cluster of Flight servers in this process, which keep the contract over tables in memory, record what they are
//! asked, and fail when a test says so. Must never use the connector's own client code.
package org.isobar.spark

import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.arrow.flight._
import org.apache.arrow.flight.auth2.CallHeaderAuthenticator
import org.apache.arrow.memory.RootAllocator

/** What all nodes of the cluster share.
  *
  * @param parts
  *   groups of regions that each table is split into
  * @param batchRows
  *   rows of a record batch
  */
final class TestCluster(nodes: Int, val parts: Int = 3, val batchRows: Int = 2, firstPort: Int = 0)
    extends AutoCloseable {
  val mapper = new ObjectMapper()
  val users = new ConcurrentHashMap[String, String](java.util.Map.of("root", "", "ada", "engine"))
  val allocator = new RootAllocator(Long.MaxValue)

  private val clock = new AtomicLong(1000)
  private val leases = new ConcurrentHashMap[String, Long] // lease → its end, Unix milliseconds
  private val bearers = ConcurrentHashMap.newKeySet[String]
  private val tables = new ConcurrentHashMap[(String, String), List[TestVersion]]

  /** Every scan that was planned, every action that was called (type and body), every stream that was opened. */
  val scans = new ConcurrentLinkedQueue[JsonNode]
  val actions = new ConcurrentLinkedQueue[(String, JsonNode)]
  val streams = new ConcurrentLinkedQueue[(Int, Int)]
  val cancelled = new AtomicInteger
  val handshakes = new AtomicInteger

  /** Called with (node, part, number of the batch) before each batch; may throw or wait. */
  @volatile var beforeBatch: (Int, Int, Int) => Unit = (_, _, _) => ()

  /** Turned on to send another schema than the plan said. */
  @volatile var spoil: TestSpoil = TestSpoil.None

  /** Locations that plans name before those of the nodes, and how many of the last named hold nothing of a part. */
  @volatile var otherLocations: Seq[Location] = Nil
  @volatile var coordinators: Int = 0

  /** Statistics that plans carry. */
  @volatile var estimates: (Long, Long) = (-1L, -1L)

  private val servers = (0 until nodes).map { node =>
    val location = Location.forGrpcInsecure("127.0.0.1", if (firstPort == 0) 0 else firstPort + node)
    FlightServer
      .builder(allocator, location, new TestFlightProducer(this, node))
      .headerAuthenticator(authenticator)
      .build()
      .start()
  }

  val ports: Seq[Int] = servers.map(_.getPort)
  def endpoints: String = ports.map(port => s"127.0.0.1:$port").mkString(",")
  def stop(node: Int): Unit = servers(node).close()

  override def close(): Unit = {
    servers.foreach(_.close())
    allocator.close()
  }

  // Tables.

  def create(database: String, name: String, columns: Seq[TestColumn], rows: Seq[Seq[Any]]): Unit =
    put(database, name, TestVersion(clock.incrementAndGet(), s"${clock.get}", 1, columns, rows))

  /** New rows, the same table. */
  def write(database: String, name: String, rows: Seq[Seq[Any]]): Unit = {
    val before = tables.get((database, name)).head
    put(database, name, before.copy(since = clock.incrementAndGet(), rows = rows))
  }

  /** The same table with other columns. */
  def alter(database: String, name: String, columns: Seq[TestColumn], rows: Seq[Seq[Any]]): Unit = {
    val before = tables.get((database, name)).head
    put(database, name, TestVersion(clock.incrementAndGet(), before.id, before.schemaVersion + 1, columns, rows))
  }

  private def put(database: String, name: String, version: TestVersion): Unit = {
    tables.merge((database, name), List(version), (old, fresh) => fresh ++ old)
    ()
  }

  def databases: Seq[String] = tables.keySet.asScala.map(_._1).toSeq.distinct.sorted
  def tablesOf(database: String): Seq[String] = tables.keySet.asScala.filter(_._1 == database).map(_._2).toSeq.sorted

  def current(database: String, name: String): TestVersion = versions(database, name).head

  def at(database: String, name: String, timestamp: Long): TestVersion =
    versions(database, name).find(_.since <= timestamp).getOrElse(throw missing(database, name))

  private def versions(database: String, name: String): List[TestVersion] =
    Option(tables.get((database, name))).getOrElse(throw missing(database, name))

  private def missing(database: String, name: String): Throwable =
    fail(CallStatus.NOT_FOUND, s"NOT_FOUND: table $database.$name does not exist")

  // Snapshots and leases. A token is `ts-lease-signature`.

  def take(ttlMillis: Long): ObjectNode = {
    val timestamp = clock.incrementAndGet()
    val lease = s"${clock.incrementAndGet()}"
    leases.put(lease, System.currentTimeMillis + ttlMillis)
    grant(s"$timestamp-$lease")
  }

  def renew(token: String, ttlMillis: Long): ObjectNode = {
    val (_, lease) = redeem(token)
    leases.put(lease, System.currentTimeMillis + ttlMillis)
    grant(token.substring(0, token.lastIndexOf('-')))
  }

  def release(token: String): Unit = {
    leases.remove(redeem(token)._2)
    ()
  }

  /** Ends every lease, as a server does when leases expire. */
  def endLeases(): Unit = leases.clear()

  def liveLeases: Int = {
    leases.values.removeIf(_ <= System.currentTimeMillis)
    leases.size
  }

  private def grant(body: String): ObjectNode = {
    val (timestamp, lease) = body.splitAt(body.indexOf('-')) match { case (ts, rest) => (ts, rest.drop(1)) }
    mapper.createObjectNode
      .put("snapshot", s"$body-${sign(body)}")
      .put("read_ts", timestamp)
      .put("lease", lease)
      .put("expires_ms", leases.get(lease): Long)
  }

  /** Read timestamp and lease of a token, if both are good. */
  def redeem(token: String): (Long, String) = token.split('-') match {
    case Array(timestamp, lease, signature) if sign(s"$timestamp-$lease") == signature =>
      if (Option(leases.get(lease)).forall(_ <= System.currentTimeMillis))
        throw fail(CallStatus.UNAUTHORIZED, s"SNAPSHOT_TOO_OLD: the snapshot's lease $lease has ended")
      (timestamp.toLong, lease)
    case _ => throw fail(CallStatus.INVALID_ARGUMENT, "INVALID: the snapshot token is malformed or forged")
  }

  def sign(text: String): String = {
    val mac = Mac.getInstance("HmacSHA256")
    mac.init(new SecretKeySpec("a key of the test cluster".getBytes(UTF_8), "HmacSHA256"))
    mac.doFinal(text.getBytes(UTF_8)).take(8).map(byte => f"$byte%02x").mkString
  }

  def fail(status: CallStatus, message: String): FlightRuntimeException =
    status.withDescription(s"ISOBAR-$message").toRuntimeException

  // Log-in: Basic with every call, or a bearer token that all nodes know.

  def forgetLogins(): Unit = bearers.clear()

  private def authenticator: CallHeaderAuthenticator = (headers: CallHeaders) => {
    val header = Option(headers.get("authorization")).getOrElse("")
    if (header.startsWith("Basic ")) {
      val login = new String(Base64.getDecoder.decode(header.drop(6)), UTF_8)
      val (user, password) = (login.takeWhile(_ != ':'), login.dropWhile(_ != ':').drop(1))
      if (users.get(user) != password) throw fail(CallStatus.UNAUTHENTICATED, s"DENIED: wrong password for $user")
      handshakes.incrementAndGet()
      val bearer = sign(s"$user ${clock.incrementAndGet()}")
      bearers.add(bearer)
      result(user, outgoing => outgoing.insert("authorization", s"Bearer $bearer"))
    } else if (header.startsWith("Bearer ") && bearers.contains(header.drop(7))) result("known", _ => ())
    else throw fail(CallStatus.UNAUTHENTICATED, "DENIED: log in first")
  }

  private def result(user: String, answer: CallHeaders => Unit): CallHeaderAuthenticator.AuthResult =
    new CallHeaderAuthenticator.AuthResult {
      override def getPeerIdentity: String = user
      override def appendToOutgoingHeaders(headers: CallHeaders): Unit = answer(headers)
    }
}

/** Ways to send something else than what was planned. */
sealed trait TestSpoil

object TestSpoil {
  case object None extends TestSpoil
  case object Dictionary extends TestSpoil
  case object OtherType extends TestSpoil
  case object NullInNotNull extends TestSpoil
  case object ForgedTicket extends TestSpoil
}
