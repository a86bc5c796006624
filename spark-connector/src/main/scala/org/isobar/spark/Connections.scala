//! What one JVM (driver or executor) keeps between reads: the Arrow root allocator, one gRPC channel a node, and
//! the threads that help. Must never hold anything of a single query.
package org.isobar.spark

import java.util.concurrent.{Callable, ConcurrentHashMap, ExecutorService, Executors, Future}
import java.util.concurrent.{ScheduledExecutorService, ScheduledFuture, ThreadFactory, TimeUnit}

import io.grpc.{ConnectivityState, ManagedChannel}
import io.grpc.netty.NettyChannelBuilder
import io.netty.channel.ChannelOption
import org.apache.arrow.memory.{BufferAllocator, RootAllocator}

object Connections {

  /** The largest message that is accepted, in bytes. A batch that is larger is a server's mistake. */
  private val maxMessageBytes = 512 * 1024 * 1024

  private lazy val root = new RootAllocator(Long.MaxValue)
  private val channels = new ConcurrentHashMap[Endpoint, ManagedChannel]

  /** A hung node is noticed by pings that it does not answer, long before any request times out. */
  private val pingSeconds = 10L
  private val pongSeconds = 5L

  /** How long a node that did not answer is asked after the others. */
  private val silenceNanos = 30_000_000_000L
  private val silent = new ConcurrentHashMap[Endpoint, Long] // until System.nanoTime

  /** Notes that a node did not answer. */
  def noteSilence(endpoint: Endpoint): Unit = {
    silent.put(endpoint, System.nanoTime + silenceNanos)
    ()
  }

  /** The same locations in the same order, those last that did not answer lately. */
  def answeringFirst(locations: Seq[Endpoint]): Seq[Endpoint] = {
    val now = System.nanoTime
    silent.values.removeIf(until => until - now <= 0)
    val (others, answering) = locations.partition(silent.containsKey(_))
    answering ++ others
  }

  private lazy val timer: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor(daemon("isobar-timer"))
  private lazy val helpers: ExecutorService = Executors.newCachedThreadPool(daemon("isobar-stream"))

  private def daemon(name: String): ThreadFactory = { (task: Runnable) =>
    val thread = new Thread(task, name)
    thread.setDaemon(true)
    thread
  }

  /** A child of this JVM's root allocator; whoever asks for it closes it. */
  def newAllocator(name: String): BufferAllocator = root.newChildAllocator(name, 0, Long.MaxValue)

  /** Bytes of Arrow memory that are held in this JVM now. */
  def allocatedBytes: Long = root.getAllocatedMemory

  /** Names of the allocators that are open in this JVM now. */
  def openAllocators: Seq[String] = {
    import scala.jdk.CollectionConverters._
    root.getChildAllocators.asScala.map(_.getName).toSeq
  }

  /** The channel to a node: one for all tasks of this JVM. gRPC drops an idle connection by itself. */
  def channel(endpoint: Endpoint, connectTimeoutMillis: Int): ManagedChannel = {
    val channel = channels.computeIfAbsent(
      endpoint,
      _ =>
        NettyChannelBuilder
          .forAddress(endpoint.host, endpoint.port)
          .usePlaintext()
          .withOption[Integer](ChannelOption.CONNECT_TIMEOUT_MILLIS, connectTimeoutMillis)
          .maxInboundMessageSize(maxMessageBytes)
          .keepAliveTime(pingSeconds, TimeUnit.SECONDS)
          .keepAliveTimeout(pongSeconds, TimeUnit.SECONDS)
          .build()
    )
    // Otherwise a node that has just come back stays unreachable for up to two minutes of gRPC's own back-off.
    if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) channel.resetConnectBackoff()
    channel
  }

  /** Runs `call` on a thread that nobody interrupts. There are as many helpers as streams that are being waited for. */
  def onHelper[T](call: => T): Future[T] = helpers.submit((() => call): Callable[T])

  /** Runs `action` again and again, `millis` apart. */
  def every(millis: Long)(action: => Unit): ScheduledFuture[_] =
    timer.scheduleWithFixedDelay((() => action): Runnable, millis, millis, TimeUnit.MILLISECONDS)
}
