//! One attempt to read one ticket at one node, on an allocator of its own.
//! Must never let a thread that Spark may interrupt call into Flight's stream: an interrupt that meets
//! FlightStream.next just as the end of the stream is taken from its queue loses the end, and closing then waits for
//! ever. A helper thread makes these calls, and the task waits for the helper.
package org.isobar.spark

import java.util.concurrent.{CancellationException, ExecutionException, Future, TimeUnit, TimeoutException}

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.apache.arrow.flight._
import org.apache.arrow.flight.auth2.BearerCredentialWriter
import org.apache.arrow.flight.grpc.CredentialCallOption
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.spark.TaskContext

import org.isobar.spark.IsobarException.Code

/** The allocator is this task's own: a stream allocates from its client's allocator, so the client is made for it, on
  * the channel that all tasks share.
  */
private[spark] final class OpenStream(task: ReadTask, ticket: Array[Byte], endpoint: Endpoint) {
  private val doing = s"reading table ${task.table} from $endpoint"
  private val allocator: BufferAllocator = Connections.newAllocator(
    s"task ${Option(TaskContext.get()).fold(-1L)(_.taskAttemptId())} ${task.table}"
  )
  private val (client, stream) = open()

  private def open(): (FlightClient, FlightStream) =
    try {
      val channel = Connections.channel(endpoint, task.connectTimeoutMillis)
      val client = FlightGrpcUtils.createFlightClientWithSharedChannel(allocator, channel)
      val login = new CredentialCallOption(new BearerCredentialWriter(task.bearer))
      try client -> client.getStream(new Ticket(ticket), login)
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

  /** The most memory that was held at once, in bytes. */
  def peakBytes: Long = allocator.getPeakMemoryAllocation

  /** The stream's vectors, which every batch fills anew. None before the first `next`, and if no schema came. */
  def root: Option[VectorSchemaRoot] = arrived

  @volatile private var arrived: Option[VectorSchemaRoot] = None

  /** Waits for the next batch, but not for longer than requestTimeout. When the wait ends in any other way than with
    * the stream's own answer, the stream is cancelled.
    *
    * @throws InterruptedException
    *   if Spark kills the task
    */
  def next(): Boolean = {
    val answer = Connections.onHelper {
      val more = stream.next()
      if (arrived.isEmpty && stream.hasRoot) arrived = Some(stream.getRoot)
      more
    }
    try answer.get(task.requestTimeoutMillis, TimeUnit.MILLISECONDS)
    catch {
      case failure: ExecutionException => throw IsobarException.from(doing, failure.getCause)
      case _: TimeoutException =>
        abandon("no batch within requestTimeout", answer)
        throw IsobarException(Code.Timeout, s"$doing: no batch came within ${task.requestTimeoutMillis} ms")
      case interrupt: InterruptedException =>
        abandon("the task was killed", answer)
        throw interrupt
    }
  }

  /** Cancels the call, which ends the helper's wait, and waits for the helper: only one thread may use the stream. */
  private def abandon(why: String, answer: Future[Boolean]): Unit = {
    stream.cancel(why, null)
    OpenStream.settled(answer)
    ()
  }

  /** To be called once the first `next` has returned, when the schema has arrived or never will. */
  def checkSchema(): Unit = arrived match {
    case Some(vectors) => StreamSchema.check(task.table, task.columns, vectors.getSchema)
    case None => throw IsobarException(Code.Protocol, s"$doing: the stream ended without a schema")
  }

  /** Closes stream, client and allocator, in that order; a stream that has not ended is cancelled. An allocator that is
    * not empty by then is a defect and fails the task, loudly.
    */
  def close(): Unit = {
    val closed = OpenStream.settled(Connections.onHelper {
      // A failure of the stream has been reported when it was read; here only its memory matters.
      try stream.close()
      catch { case NonFatal(_) => () }
      try client.close()
      catch { case NonFatal(_) => () }
      allocator.close()
      true
    })
    closed match {
      case Right(_) => ()
      case Left(failure) => throw IsobarException.from(s"closing after $doing", failure)
    }
  }
}

private object OpenStream {

  /** The longest wait for a cancelled call to end. gRPC ends it at once, without the network. */
  private val settleMillis = 30_000L

  /** Waits for a helper although this thread may be interrupted; the interrupt is kept for later. */
  private def settled[T](answer: Future[T]): Either[Throwable, T] = {
    @tailrec def waiting(interrupted: Boolean): (Either[Throwable, T], Boolean) = {
      val outcome: Option[Either[Throwable, T]] =
        try Some(Right(answer.get(settleMillis, TimeUnit.MILLISECONDS)))
        catch {
          case _: InterruptedException => None
          case failure: ExecutionException => Some(Left(failure.getCause))
          case failure @ (_: TimeoutException | _: CancellationException) => Some(Left(failure))
        }
      outcome match {
        case Some(result) => (result, interrupted)
        case None => waiting(interrupted = true)
      }
    }
    val (result, interrupted) = waiting(interrupted = false)
    if (interrupted) Thread.currentThread.interrupt()
    result
  }
}
