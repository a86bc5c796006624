//! One Flight stream with its memory: opened with failover, waited for within bounds, closed to the last byte.
//! Must never retry once a batch has been handed out: the rows would come twice. Spark retries the whole task.
package org.isobar.spark

import scala.annotation.tailrec

import org.apache.arrow.vector.VectorSchemaRoot

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
      open.flatMap(_.root)
    }

  private def advance(): Boolean = open.exists(_.next())

  /** Opens the stream and reads its first batch, at one location after the other, a few times around; nodes that did
    * not answer lately come last.
    */
  private def first(): Boolean = {
    val order = Connections.answeringFirst(partition.locations)
    @tailrec def from(turn: Int): Boolean = {
      val endpoint = order(turn % order.length)
      val outcome =
        try Right(openAt(endpoint))
        catch { case failure: IsobarException => Left(failure) }
      outcome.left.foreach(failure => if (failure.isSilence) Connections.noteSilence(endpoint))
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
      case failure: Throwable => // an interrupt, too
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
