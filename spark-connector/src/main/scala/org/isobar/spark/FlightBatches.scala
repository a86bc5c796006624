//! One Flight stream with its memory: opened with failover, waited for within bounds, closed to the last byte.
//! Must never retry once a batch has been handed out: the rows would come twice. Spark retries the whole task.
package org.isobar.spark

import java.util.concurrent.atomic.AtomicBoolean

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.apache.arrow.flight._
import org.apache.arrow.flight.auth2.BearerCredentialWriter
import org.apache.arrow.flight.grpc.CredentialCallOption
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.spark.TaskContext

import org.isobar.spark.IsobarException.Code

/** The batches of one ticket. For one thread; `close` may be called again. */
final class FlightBatches(task: ReadTask, partition: IsobarPartition) {
  private var open: Option[OpenStream] = None
  private var firstIsRead = false
  private var ended = false
  private var waited = 0L
  private var peak = 0L

  /** Time spent waiting for batches, in nanoseconds. */
  def waitedNanos: Long = waited

  /** The most Arrow memory this task held at once, in bytes. */
  def peakBytes: Long = open.fold(peak)(stream => math.max(peak, stream.peakBytes))

  /** The next batch, valid until the following call; None at the end. */
  def next(): Option[VectorSchemaRoot] =
    if (ended) None
    else {
      val start = System.nanoTime
      val more =
        try if (firstIsRead) advance() else first()
        finally waited += System.nanoTime - start
      if (!more) close()
      open.map(_.root)
    }

  private def advance(): Boolean = open.exists(_.next())

  /** Opens the stream and reads its first batch, at one location after the other, a few times around. */
  private def first(): Boolean = {
    val order = partition.locations
    @tailrec def from(turn: Int): Boolean = {
      val endpoint = order(turn % order.length)
      val outcome =
        try Right(openAt(endpoint))
        catch { case failure: IsobarException => Left(failure) }
      outcome match {
        case Right(hasBatch) => hasBatch
        case Left(failure) if !failure.isRetryable || turn + 1 >= order.length * FlightBatches.rounds => throw failure
        case Left(_) =>
          if ((turn + 1) % order.length == 0) Thread.sleep(FlightBatches.pauseMillis << (turn / order.length))
          from(turn + 1)
      }
    }
    val more = from(0)
    firstIsRead = true
    more
  }

  private def openAt(endpoint: Endpoint): Boolean = {
    val stream = new OpenStream(task, partition.ticket, endpoint)
    open = Some(stream)
    try {
      val more = stream.next()
      stream.checkSchema()
      more
    } catch {
      case NonFatal(failure) =>
        release()
        throw failure
    }
  }

  /** Gives everything back; a stream that has not ended is cancelled at the server. */
  def close(): Unit = {
    ended = true
    release()
  }

  private def release(): Unit = open.foreach { stream =>
    peak = math.max(peak, stream.peakBytes)
    open = None
    stream.close()
  }
}

private object FlightBatches {
  val rounds = 3
  val pauseMillis = 100L
}

/** One attempt at one node. The allocator is this task's own: a stream allocates from its client's allocator, so the
  * client is made for it, on the channel that all tasks share.
  */
private final class OpenStream(task: ReadTask, ticket: Array[Byte], endpoint: Endpoint) {
  private val doing = s"reading table ${task.table} from $endpoint"
  private val timedOut = new AtomicBoolean(false)
  private val allocator: BufferAllocator = Connections.newAllocator(
    s"task ${Option(TaskContext.get()).fold(-1L)(_.taskAttemptId())} ${task.table}"
  )
  private val (client, stream) =
    try {
      val channel = Connections.channel(endpoint, task.connectTimeoutMillis)
      val client = FlightGrpcUtils.createFlightClientWithSharedChannel(allocator, channel)
      try
        client -> client.getStream(
          new Ticket(ticket),
          new CredentialCallOption(new BearerCredentialWriter(task.bearer))
        )
      catch {
        case NonFatal(failure) =>
          client.close()
          throw failure
      }
    } catch {
      case NonFatal(failure) =>
        allocator.close()
        throw IsobarException.from(doing, failure)
    }

  def peakBytes: Long = allocator.getPeakMemoryAllocation

  def root: VectorSchemaRoot = stream.getRoot

  /** Waits for the next batch, but not for longer than requestTimeout. */
  def next(): Boolean = {
    val guard = Connections.after(task.requestTimeoutMillis) {
      timedOut.set(true)
      stream.cancel("no batch within requestTimeout", null)
    }
    try stream.next()
    catch {
      case NonFatal(_) if timedOut.get =>
        throw IsobarException(Code.Timeout, s"$doing: no batch came within ${task.requestTimeoutMillis} ms")
      case NonFatal(failure) => throw IsobarException.from(doing, failure)
    } finally {
      guard.cancel(false)
      ()
    }
  }

  /** To be called once the first `next` has returned, when the schema has arrived or never will. */
  def checkSchema(): Unit =
    if (stream.hasRoot) StreamSchema.check(task.table, task.columns, stream.getSchema)
    else throw IsobarException(Code.Protocol, s"$doing: the stream ended without a schema")

  /** Closes stream, client and allocator, in that order. An allocator that is not empty by then is a defect and fails
    * the task, loudly.
    */
  def close(): Unit = {
    // Closing drains the stream, which a pending interrupt (a killed task) would cut short, leaving buffers behind.
    val interrupted = Thread.interrupted()
    try {
      quietly(stream.close())
      quietly(client.close())
      allocator.close()
    } finally if (interrupted) Thread.currentThread.interrupt()
  }

  /** A failure of the stream has been reported when it was read; here only its memory matters. */
  private def quietly(close: => Unit): Unit =
    try close
    catch { case NonFatal(_) => () }
}
