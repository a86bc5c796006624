//! The one exception of the connector: a code that programs can match, and what to do next.
//! Must never carry a password, a login token, a whole snapshot token or row values.
package org.isobar.spark

import scala.util.matching.Regex

import org.apache.arrow.flight.{FlightRuntimeException, FlightStatusCode}

/** A failure of a read, with the code that the server (or the connector itself) gave it.
  *
  * @param code
  *   one of [[IsobarException.Code]], without the `ISOBAR-` prefix
  * @param detail
  *   what failed: object and cause
  * @param advice
  *   what the user can do about it
  */
final class IsobarException(val code: String, val detail: String, val advice: String, cause: Throwable = null)
    extends RuntimeException(s"ISOBAR-$code: $detail${if (advice.isEmpty) "" else s" [$advice]"}", cause) {

  /** True when the same request may succeed at another node or a moment later. */
  def isRetryable: Boolean = IsobarException.retryable(code)

  /** True when the node may be down or hung, so that others are better asked first for a while. */
  def isSilence: Boolean = code == IsobarException.Code.Unavailable || code == IsobarException.Code.Timeout
}

object IsobarException {

  /** Codes of the Flight contract, and the few that only a client can notice. */
  object Code {
    val SnapshotTooOld = "SNAPSHOT_TOO_OLD"
    val LeaseLost = "LEASE_LOST"
    val TicketForged = "TICKET_FORGED"
    val TicketExpired = "TICKET_EXPIRED"
    val TableChanged = "TABLE_CHANGED"
    val NotFound = "NOT_FOUND"
    val Invalid = "INVALID"
    val StaleRegion = "STALE_REGION"
    val Unavailable = "UNAVAILABLE"
    val Timeout = "TIMEOUT"
    val Corrupt = "CORRUPT"
    val Cancelled = "CANCELLED"
    val Unsupported = "UNSUPPORTED"
    val Unauthenticated = "UNAUTHENTICATED"
    val Denied = "DENIED"
    val Protocol = "PROTOCOL"
  }

  private val retryable = Set(Code.Unavailable, Code.Timeout, Code.StaleRegion, Code.Corrupt)

  private val coded: Regex = """(?s).*?ISOBAR-([A-Z_]+):\s*(.*)""".r

  private val advices: Map[String, String] = Map(
    Code.SnapshotTooOld -> "take a new snapshot, SELECT isobar_snapshot('10m'), or leave the option snapshot out",
    Code.LeaseLost -> "the snapshot's lease has ended: build the DataFrame again, or raise the option snapshotTtl",
    Code.TicketForged -> "use endpoints of one cluster only; the ticket was not issued by this cluster",
    Code.TicketExpired -> "the snapshot's lease has ended: build the DataFrame again, or raise the option snapshotTtl",
    Code.TableChanged -> "build the DataFrame again, so that Spark sees the table as it is now",
    Code.NotFound -> "check the name with SHOW TABLES",
    Code.StaleRegion -> "regions moved during the read: run the query again",
    Code.Unavailable -> "check that the columnar nodes run and that the option endpoints names their Flight ports",
    Code.Timeout -> "check the columnar nodes and their replica lag, or raise the option requestTimeout",
    Code.Corrupt -> "look into the log of the columnar node that is named; do not trust this result",
    Code.Cancelled -> "the stream was cancelled: run the query again",
    Code.Unsupported -> "read this through the MySQL port instead",
    Code.Unauthenticated -> "check user and password; a query that outlives its login must be run again",
    Code.Denied -> "ask for the missing privilege",
    Code.Protocol -> "connector and server do not fit together: compare their versions"
  )

  def apply(code: String, detail: String, cause: Throwable = null): IsobarException =
    new IsobarException(code, detail, advices.getOrElse(code, ""), cause)

  /** Turns what Flight threw into the typed error. `doing` names the object, e.g. `reading d.t from 10.0.0.1:8815`. */
  def from(doing: String, failure: Throwable): IsobarException = failure match {
    case known: IsobarException => known
    case flight: FlightRuntimeException =>
      val text = Option(flight.getMessage).getOrElse("no message")
      (flight.status.code, text) match {
        // The status says more about what to do than any code: log in properly.
        case (FlightStatusCode.UNAUTHENTICATED, coded(_, rest)) =>
          apply(Code.Unauthenticated, s"$doing: $rest", portable(flight))
        case (_, coded(code, rest)) => apply(code, s"$doing: $rest", portable(flight))
        case (status, _) => apply(codeOf(status), s"$doing: $text", portable(flight))
      }
    case other => apply(Code.Protocol, s"$doing: ${other.getClass.getSimpleName}: ${other.getMessage}", portable(other))
  }

  /** Flight's exceptions cannot be serialized, and Spark drops an exception with such a cause on the way to the driver.
    */
  private def portable(failure: Throwable): Throwable = {
    val result = new RuntimeException(failure.toString)
    result.setStackTrace(failure.getStackTrace)
    result
  }

  /** The code for a gRPC status whose message carries none. */
  private def codeOf(status: FlightStatusCode): String = status match {
    case FlightStatusCode.UNAVAILABLE => Code.Unavailable
    case FlightStatusCode.TIMED_OUT => Code.Timeout
    case FlightStatusCode.CANCELLED => Code.Cancelled
    case FlightStatusCode.NOT_FOUND => Code.NotFound
    case FlightStatusCode.INVALID_ARGUMENT => Code.Invalid
    case FlightStatusCode.UNIMPLEMENTED => Code.Unsupported
    case FlightStatusCode.UNAUTHENTICATED => Code.Unauthenticated
    case FlightStatusCode.UNAUTHORIZED => Code.Denied
    case _ => Code.Protocol
  }
}
