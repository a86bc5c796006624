//! Keeps the leases of running queries alive, and gives back those that nobody can use any more.
//! Must never throw into Spark: a lease that cannot be renewed shows as a typed error of the read that needs it.
//!
//! - While the application runs jobs, every lease whose plan is still reachable is renewed.
//! - A plan that is idle (a DataFrame in a notebook) lets its lease run out, so it cannot hold back the row store's
//!   garbage collection for long.
//! - A plan that nobody refers to, and every plan when the application ends, has its lease released at once.
package org.isobar.spark

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.sql.SparkSession

private[spark] object LeaseKeeper extends Logging {
  private val leases = ConcurrentHashMap.newKeySet[Lease]
  private val watched = ConcurrentHashMap.newKeySet[SparkContext]
  private val turns = new ConcurrentHashMap[Long, AnyRef]

  /** Renewed this many times a lease, so that a lost renewal or two do no harm. */
  private val renewalsPerLease = 4

  def keep(lease: Lease): Unit = {
    leases.add(lease)
    context
      .filter(watched.add)
      .foreach(_.addSparkListener(new SparkListener {
        override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = {
          leases.asScala.toSeq.foreach(release)
          watched.removeIf(_.isStopped)
        }
      }))
    // One timer for each length of lease that is in use.
    val period = math.max(lease.client.options.snapshotTtlMillis / renewalsPerLease, 50L)
    turns.computeIfAbsent(period, _ => Connections.every(period)(turn(period)))
    ()
  }

  /** Leases that are held now. */
  def held: Seq[Lease] = leases.asScala.toSeq

  private def turn(period: Long): Unit =
    try {
      QuerySnapshot.forgetFinished()
      val busy = context.exists(_.statusTracker.getActiveJobIds().nonEmpty)
      leases.asScala.toSeq
        .filter(lease => math.max(lease.client.options.snapshotTtlMillis / renewalsPerLease, 50L) == period)
        .foreach { lease =>
          if (lease.isAbandoned) release(lease)
          else if (lease.hasLapsed) leases.remove(lease)
          else if (busy) renew(lease)
        }
    } catch {
      case NonFatal(failure) => logWarning("Isobar: looking after snapshot leases failed; trying again later", failure)
    }

  private def renew(lease: Lease): Unit =
    try lease.extend(lease.client.renewSnapshot(lease.token))
    catch {
      case failure: IsobarException if failure.isRetryable =>
        logWarning(s"Isobar: a snapshot's lease was not renewed, trying again: ${failure.getMessage}")
      case NonFatal(failure) =>
        leases.remove(lease)
        logWarning(s"Isobar: a snapshot's lease is lost: ${failure.getMessage}")
    }

  private def release(lease: Lease): Unit = if (leases.remove(lease) && !lease.hasLapsed) {
    try lease.client.releaseSnapshot(lease.token)
    catch {
      case NonFatal(failure) =>
        logInfo(s"Isobar: a snapshot was not released and will lapse by itself: ${failure.getMessage}")
    }
  }

  private def context: Option[SparkContext] =
    SparkSession.getActiveSession.orElse(SparkSession.getDefaultSession).map(_.sparkContext).filterNot(_.isStopped)
}
