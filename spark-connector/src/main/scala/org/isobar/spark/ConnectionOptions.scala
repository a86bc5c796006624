//! The options a user may set, parsed once on the driver into immutable data.
//! Must never print a password or a whole snapshot token: every toString here is redacted.
package org.isobar.spark

import java.nio.file.{Files, Path}
import java.util.Locale

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Host and Flight port of one columnar node. */
final case class Endpoint(host: String, port: Int) {
  override def toString: String = s"$host:$port"
}

/** How to reach a cluster, and at which snapshot to read it.
  *
  * @param endpoints
  *   columnar nodes, tried in this order
  * @param snapshot
  *   token that all reads use; without one every query takes its own
  * @param snapshotTtl
  *   lease of the snapshots that the connector takes, as the server spells durations (`10m`)
  * @param snapshotTtlMillis
  *   the same in milliseconds
  * @param connectTimeoutMillis
  *   longest wait for a connection
  * @param requestTimeoutMillis
  *   longest wait for any one answer: a catalog call, or the next batch of a stream
  * @param resourceGroup
  *   group that pays for what is read; the user's own without
  */
final case class ConnectionOptions(
    endpoints: Seq[Endpoint],
    user: String,
    password: String,
    snapshot: Option[String],
    snapshotTtl: String,
    snapshotTtlMillis: Long,
    connectTimeoutMillis: Int,
    requestTimeoutMillis: Long,
    resourceGroup: Option[String] = None
) {

  /** The same cluster and login, whatever snapshot is asked for. */
  def withoutSnapshot: ConnectionOptions = copy(snapshot = None)

  override def toString: String = s"ConnectionOptions(${endpoints.mkString(",")}, user $user)"
}

object ConnectionOptions {
  val Endpoints = "endpoints"
  val User = "user"
  val Password = "password"
  val PasswordFile = "passwordFile"
  val Snapshot = "snapshot"
  val SnapshotTtl = "snapshotTtl"
  val ConnectTimeout = "connectTimeout"
  val RequestTimeout = "requestTimeout"
  val ResourceGroup = "resourceGroup"

  /** Environment variable that is read when neither `password` nor `passwordFile` is set. */
  val PasswordVariable = "ISOBAR_PASSWORD"

  /** Every key of a connection. */
  val keys: Seq[String] =
    Seq(Endpoints, User, Password, PasswordFile, Snapshot, SnapshotTtl, ConnectTimeout, RequestTimeout, ResourceGroup)

  private val duration = """(\d{1,9})(ms|s|m|h)""".r

  /** Parses options.
    *
    * @param where
    *   prefix for messages, e.g. `spark.sql.catalog.isobar.`
    * @param more
    *   further keys that are allowed here and that the caller reads itself
    * @throws IllegalArgumentException
    *   naming the key that is unknown, missing or malformed
    */
  def parse(
      options: CaseInsensitiveStringMap,
      where: String,
      more: Seq[String] = Nil,
      environment: String => Option[String] = sys.env.get
  ): ConnectionOptions = {
    rejectUnknown(options, where, keys ++ more)
    def text(key: String): Option[String] = Option(options.get(key)).map(_.trim).filter(_.nonEmpty)
    val ttl = text(SnapshotTtl).getOrElse("10m")
    ConnectionOptions(
      endpoints = endpoints(where, text(Endpoints)),
      user = text(User).getOrElse("root"),
      password = password(options, where, environment),
      snapshot = text(Snapshot),
      snapshotTtl = ttl,
      snapshotTtlMillis = millis(where, SnapshotTtl, ttl),
      connectTimeoutMillis = millis(where, ConnectTimeout, text(ConnectTimeout).getOrElse("10s")).toInt,
      requestTimeoutMillis = millis(where, RequestTimeout, text(RequestTimeout).getOrElse("60s")),
      resourceGroup = text(ResourceGroup)
    )
  }

  /** Throws for the first key that nobody reads, so that a misspelt option is never silently ignored. */
  def rejectUnknown(options: CaseInsensitiveStringMap, where: String, known: Seq[String]): Unit = {
    val lower = known.map(_.toLowerCase(Locale.ROOT)).toSet
    options.asCaseSensitiveMap.keySet.asScala.toSeq.sorted
      .find(key => !lower(key.toLowerCase(Locale.ROOT)))
      .foreach(key => bad(s"unknown option $where$key; known are ${known.mkString(", ")}"))
  }

  private def endpoints(where: String, value: Option[String]): Seq[Endpoint] = {
    val text = value.getOrElse(
      bad(
        s"option $where$Endpoints is missing: give the columnar nodes' Flight servers, e.g. 127.0.0.1:4100,127.0.0.1:4101"
      )
    )
    val parsed = text.split(',').toSeq.map(_.trim).filter(_.nonEmpty).map { item =>
      // The last colon separates the port, so that [::1]:4100 works.
      val colon = item.lastIndexOf(':')
      val port = if (colon > 0) item.substring(colon + 1).toIntOption else None
      port match {
        case Some(number) if number > 0 && number < 65536 =>
          Endpoint(item.substring(0, colon).stripPrefix("[").stripSuffix("]"), number)
        case _ => bad(s"option $where$Endpoints: '$item' is not host:port")
      }
    }
    if (parsed.isEmpty) bad(s"option $where$Endpoints is empty: give host:port,host:port")
    parsed
  }

  private def password(
      options: CaseInsensitiveStringMap,
      where: String,
      environment: String => Option[String]
  ): String = (Option(options.get(Password)), Option(options.get(PasswordFile))) match {
    case (Some(_), Some(_)) => bad(s"options $where$Password and $where$PasswordFile are both set: keep one")
    case (Some(password), None) => password
    case (None, Some(file)) =>
      try Files.readString(Path.of(file)).stripLineEnd
      catch {
        case NonFatal(failure) =>
          bad(s"option $where$PasswordFile: cannot read $file: ${failure.getClass.getSimpleName}")
      }
    case (None, None) => environment(PasswordVariable).getOrElse("")
  }

  private def millis(where: String, key: String, text: String): Long = text match {
    case duration(amount, unit) if amount.toLong > 0 =>
      val factor = unit match {
        case "ms" => 1L
        case "s" => 1000L
        case "m" => 60_000L
        case _ => 3_600_000L
      }
      val result = amount.toLong * factor
      if (result > Int.MaxValue) bad(s"option $where$key: '$text' is more than 24 days") else result
    case _ => bad(s"option $where$key: '$text' is not a duration such as 500ms, 30s, 10m or 2h")
  }

  private def bad(message: String): Nothing = throw new IllegalArgumentException(message)
}
