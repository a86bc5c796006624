//! One snapshot a query: which token the scans of one Spark query read, and how long its lease is kept.
//! Must never release or renew a snapshot that the user brought along, and never print a token.
//!
//! What "one query" is: Spark optimises a whole query, subqueries and all joined tables included, under one
//! QueryPlanningTracker, a thread-local that belongs to its QueryExecution. Scans are built there, so scans that see
//! the same tracker belong to the same query and share one snapshot. Every action that plans anew (a DataFrame's
//! `count` after its `show`) is a query of its own and sees newer data; a plan that is run again as it stands
//! (`collect` twice on one DataFrame) reads its first snapshot again, if the lease still lives.
package org.isobar.spark

import java.lang.ref.WeakReference
import java.util.WeakHashMap

import scala.collection.mutable

import org.apache.spark.sql.catalyst.QueryPlanningTracker

/** The snapshot that the scans of one query share. Taken when first needed. */
final class QuerySnapshot private (client: IsobarClient, fixed: Option[String]) {
  private var lease: Option[Lease] = None
  private var pinned = false

  /** The token to plan with. A lease that lapsed between planning and running is replaced, for all scans of the query
    * alike, as long as none of them has been pinned.
    */
  def token(): String = fixed.getOrElse(synchronized {
    lease match {
      case Some(held) if pinned || !held.hasLapsed => held.token
      case _ =>
        val held = Lease.take(client, this)
        lease = Some(held)
        held.token
    }
  })

  /** The token to read with: from here on this query stays at it, come what may. */
  def pin(): String = synchronized {
    val chosen = token()
    pinned = true
    chosen
  }

  /** True if the user named this snapshot, rather than the connector taking it. */
  def isNamed: Boolean = fixed.isDefined

  private[spark] def fixedToken: Option[String] = fixed
}

object QuerySnapshot {
  // Trackers compare by identity. Values must not refer to their tracker, or nothing here would ever be freed.
  private val queries = new WeakHashMap[QueryPlanningTracker, mutable.Map[IsobarClient, QuerySnapshot]]

  /** Lets go of queries that nobody refers to any more; a WeakHashMap does so only when it is used. */
  private[spark] def forgetFinished(): Unit = queries.synchronized {
    queries.size
    ()
  }

  /** The snapshot named by a token of the user's. */
  def named(client: IsobarClient, token: String): QuerySnapshot = new QuerySnapshot(client, Some(token))

  /** The snapshot of the query that is being planned on this thread. */
  def ofThisQuery(client: IsobarClient): QuerySnapshot = QueryPlanningTracker.get match {
    case Some(tracker) =>
      queries.synchronized {
        queries
          .computeIfAbsent(tracker, _ => mutable.Map.empty)
          .getOrElseUpdate(client, new QuerySnapshot(client, None))
      }
    case None => new QuerySnapshot(client, None) // a scan built by hand, outside any query
  }
}

/** A lease that the connector holds. Refers to its query weakly, to notice when nothing can run it any more. */
private[spark] final class Lease(val client: IsobarClient, val token: String, query: WeakReference[QuerySnapshot]) {
  @volatile private var deadlineNanos = 0L

  def hasLapsed: Boolean = System.nanoTime - deadlineNanos >= 0

  def isAbandoned: Boolean = query.get == null

  /** Notes how long the grant lasts. The shorter of what was asked and what the server says, so that a server which
    * grants less is believed, and two clocks that differ cannot stretch a lease.
    */
  def extend(grant: SnapshotGrant): Unit = {
    val said = grant.expiresMillis - System.currentTimeMillis
    val millis = if (said > 0) math.min(said, client.options.snapshotTtlMillis) else client.options.snapshotTtlMillis
    deadlineNanos = System.nanoTime + millis * 1_000_000L
  }
}

private[spark] object Lease {

  /** Takes a snapshot for `query` and gives its lease into the keeper's hands. */
  def take(client: IsobarClient, query: QuerySnapshot): Lease = {
    val grant = client.takeSnapshot()
    val lease = new Lease(client, grant.token, new WeakReference(query))
    lease.extend(grant)
    LeaseKeeper.keep(lease)
    lease
  }
}
