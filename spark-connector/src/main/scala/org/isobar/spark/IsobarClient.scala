//! The driver's side of the Flight server: log-in, catalog, snapshots and scan planning, with failover between nodes.
//! Must never run on an executor: it knows the password.
package org.isobar.spark

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicReference

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.arrow.flight._
import org.apache.arrow.flight.auth2.{BasicAuthCredentialWriter, BearerCredentialWriter}
import org.apache.arrow.flight.grpc.CredentialCallOption

import org.isobar.spark.IsobarException.Code

/** One logged-in user at one cluster. Safe for many threads. */
final class IsobarClient private (val options: ConnectionOptions) {
  private val clients = new ConcurrentHashMap[Endpoint, FlightClient]
  private val logins = new LoginCapture
  @volatile private var preferred = 0
  @volatile private var bearer: Option[String] = None

  def databases(): Seq[String] =
    Protocol.strings(action("listing databases", "catalog.databases", Protocol.bytes(Protocol.obj())))

  def tables(database: String): Seq[String] =
    Protocol.strings(
      action(s"listing tables of $database", "catalog.tables", Protocol.bytes(Protocol.obj().put("database", database)))
    )

  def table(database: String, name: String): TableDescription = {
    val body = Protocol.bytes(Protocol.obj().put("database", database).put("table", name))
    Protocol.table(database, name, action(s"describing table $database.$name", "catalog.table", body))
  }

  def takeSnapshot(): SnapshotGrant = Protocol.snapshot(
    action("taking a snapshot", "snapshot.take", Protocol.bytes(Protocol.obj().put("ttl", options.snapshotTtl)))
  )

  def renewSnapshot(token: String): SnapshotGrant = {
    val body = Protocol.obj().put("snapshot", token).put("ttl", options.snapshotTtl)
    Protocol.snapshot(action("renewing a snapshot's lease", "snapshot.renew", Protocol.bytes(body)))
  }

  def releaseSnapshot(token: String): Unit = {
    action("releasing a snapshot", "snapshot.release", Protocol.bytes(Protocol.obj().put("snapshot", token)))
    ()
  }

  /** Plans a scan: which tickets to read, and where. */
  def scan(request: ScanRequest): ScanPlan = {
    val doing = s"planning a scan of ${request.database}.${request.table}"
    val descriptor = FlightDescriptor.command(Protocol.scanCommand(request, options.resourceGroup))
    val info = call(doing)((client, options) => client.getInfo(descriptor, options: _*))
    val schema = info.getSchemaOptional
    if (schema.isEmpty) throw IsobarException(Code.Protocol, s"$doing: the answer has no schema")
    val (readTimestamp, tableId) = Protocol.scanMetadata(info.getAppMetadata)
    val parts = info.getEndpoints.asScala.toSeq.map { endpoint =>
      val nodes = locations(doing, endpoint.getLocations.asScala.toSeq)
      ScanPart(endpoint.getTicket.getBytes, nodes, Protocol.replicas(endpoint.getAppMetadata, nodes.length))
    }
    ScanPlan(schema.get, parts, info.getRecords, info.getBytes, readTimestamp, tableId)
  }

  /** Logs in anew and returns the short-lived token that executors may use instead of the password. */
  def freshBearer(): String = attempt("logging in")(login)

  /** A part without locations, or with Flight's "same connection" location, is read where it was planned. */
  private def locations(doing: String, offered: Seq[Location]): Seq[Endpoint] = {
    val named = offered.filterNot(_.getUri.getScheme == "arrow-flight-reuse-connection").map { location =>
      val uri = location.getUri
      uri.getScheme match {
        case "grpc" | "grpc+tcp" if uri.getHost != null && uri.getPort > 0 =>
          Endpoint(uri.getHost.stripPrefix("[").stripSuffix("]"), uri.getPort)
        case _ => throw IsobarException(Code.Unsupported, s"$doing: location $uri is not grpc://host:port")
      }
    }
    if (named.nonEmpty) named else rotated.map(_._1)
  }

  private def action(doing: String, name: String, body: Array[Byte]): Array[Byte] =
    call(doing) { (client, options) =>
      val results = client.doAction(new Action(name, body), options: _*)
      if (!results.hasNext) throw IsobarException(Code.Protocol, s"$doing: the server answered nothing")
      val answer = results.next().getBody
      while (results.hasNext) results.next() // an unread stream would keep the call open
      answer
    }

  /** Calls with the log-in at hand; one that has expired is replaced once. */
  private def call[T](doing: String)(run: (FlightClient, Seq[CallOption]) => T): T =
    attempt(doing) { (client, endpoint) =>
      val known = bearer
      val used = known.getOrElse(login(client, endpoint))
      try run(client, callOptions(used))
      catch {
        case flight: FlightRuntimeException
            if flight.status.code == FlightStatusCode.UNAUTHENTICATED && known.isDefined =>
          run(client, callOptions(login(client, endpoint)))
      }
    }

  private def callOptions(token: String): Seq[CallOption] = Seq(
    new CredentialCallOption(new BearerCredentialWriter(token)),
    CallOptions.timeout(options.requestTimeoutMillis, TimeUnit.MILLISECONDS)
  )

  private def login(client: FlightClient, endpoint: Endpoint): String = {
    val token =
      try
        logins.during {
          client.handshake(
            new CredentialCallOption(new BasicAuthCredentialWriter(options.user, options.password)),
            CallOptions.timeout(options.requestTimeoutMillis, TimeUnit.MILLISECONDS)
          )
        }
      catch {
        case NonFatal(failure) => throw IsobarException.from(s"logging in as ${options.user} at $endpoint", failure)
      }
    val issued =
      token.getOrElse(throw IsobarException(Code.Protocol, s"logging in at $endpoint: no bearer token was issued"))
    bearer = Some(issued)
    issued
  }

  /** Tries node after node, twice around at most; only failures that another node may not have are retried. */
  private def attempt[T](doing: String)(run: (FlightClient, Endpoint) => T): T = {
    val order = rotated
    @tailrec def from(turn: Int): T = {
      val (endpoint, index) = order(turn % order.length)
      val outcome =
        try Right(run(client(endpoint), endpoint))
        catch { case NonFatal(failure) => Left(IsobarException.from(s"$doing at $endpoint", failure)) }
      outcome match {
        case Right(value) =>
          preferred = index
          value
        case Left(failure) if !failure.isRetryable || turn + 1 >= order.length * IsobarClient.rounds => throw failure
        case Left(_) =>
          if ((turn + 1) % order.length == 0) Thread.sleep(IsobarClient.pauseMillis)
          from(turn + 1)
      }
    }
    from(0)
  }

  /** The endpoints with their positions, starting at the one that answered last. */
  private def rotated: Seq[(Endpoint, Int)] = {
    val all = options.endpoints.zipWithIndex
    all.drop(preferred) ++ all.take(preferred)
  }

  /** Clients are never closed: they live on the JVM's shared channels, and there is one per node. */
  private def client(endpoint: Endpoint): FlightClient = {
    val channel = Connections.channel(endpoint, options.connectTimeoutMillis)
    clients.computeIfAbsent(
      endpoint,
      _ =>
        FlightGrpcUtils.createFlightClient(
          IsobarClient.allocator,
          channel,
          java.util.List.of[FlightClientMiddleware.Factory](logins)
        )
    )
  }
}

object IsobarClient {
  private val rounds = 2
  private val pauseMillis = 200L
  private lazy val allocator = Connections.newAllocator("driver")
  private val opened = new ConcurrentHashMap[ConnectionOptions, IsobarClient]

  /** The client for these options: one per cluster and user in the driver, so that log-ins are shared. */
  def open(options: ConnectionOptions): IsobarClient =
    opened.computeIfAbsent(options.withoutSnapshot, new IsobarClient(_))
}

/** Picks the bearer token out of the response headers of a handshake. */
private final class LoginCapture extends FlightClientMiddleware.Factory {
  private val seen = new AtomicReference[Option[String]](None)

  /** Runs one handshake at a time and returns the token that came back with it. */
  def during(handshake: => Unit): Option[String] = synchronized {
    seen.set(None)
    handshake // headers arrive, on gRPC's thread, before the call completes
    seen.get
  }

  override def onCallStarted(call: CallInfo): FlightClientMiddleware = new FlightClientMiddleware {
    override def onBeforeSendingHeaders(headers: CallHeaders): Unit = ()
    override def onCallCompleted(status: CallStatus): Unit = ()
    override def onHeadersReceived(headers: CallHeaders): Unit =
      if (call.method == FlightMethod.HANDSHAKE) {
        Option(headers.get("authorization"))
          .filter(_.startsWith(LoginCapture.scheme))
          .foreach(value => seen.set(Some(value.substring(LoginCapture.scheme.length))))
      }
  }
}

private object LoginCapture {
  val scheme = "Bearer "
}
