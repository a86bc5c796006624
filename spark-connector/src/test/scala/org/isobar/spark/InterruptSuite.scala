//! Tasks that are killed: wherever the interrupt hits, the stream ends, its memory is given back, and no thread hangs.
package org.isobar.spark

import java.util.concurrent.atomic.AtomicReference

import scala.util.Random

class InterruptSuite extends SparkTest {

  /** Reads one ticket in a thread of its own, which is interrupted after a while. True if it ended by itself. */
  private def interrupted(part: ScanPart, bearer: String, micros: Long): Boolean = {
    val columns = TestTables.plain.map(column => ColumnInfo(column.name, column.mysqlType, column.nullable))
    val task = new ReadTask("d.t", columns, bearer, 5_000, 20_000)
    val problem = new AtomicReference[Option[Throwable]](None)
    val thread = new Thread(() => {
      val batches = new FlightBatches(task, new IsobarPartition(part))
      try while (batches.next().isDefined) {}
      catch {
        case _: InterruptedException | _: IsobarException => ()
        case other: Throwable => problem.set(Some(other))
      } finally
        try batches.close()
        catch { case failure: Throwable => problem.set(Some(failure)) }
    })
    thread.start()
    java.util.concurrent.locks.LockSupport.parkNanos(micros * 1000)
    thread.interrupt()
    thread.join(10_000)
    problem.get.foreach(failure => fail(s"interrupted after $micros µs: $failure ${failure.getCause}", failure))
    !thread.isAlive
  }

  private def rounds(count: Int, within: Int): Unit = {
    val client = IsobarClient.open(
      ConnectionOptions(
        cluster.ports.map(Endpoint("127.0.0.1", _)),
        "ada",
        "engine",
        None,
        "10m",
        600_000,
        5_000,
        20_000
      )
    )
    val columns = TestTables.plain.map(_.name)
    val plan = client.scan(ScanRequest("d", "t", columns, None, client.takeSnapshot().token, None))
    val seed = System.nanoTime
    val random = new Random(seed)
    (1 to count).foreach { round =>
      assert(
        interrupted(plan.parts.head, client.freshBearer(), random.nextInt(within).toLong),
        s"round $round, seed $seed"
      )
    }
  }

  test("interrupts that meet a stream which fails at once") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(30))
    cluster.spoil = TestSpoil.ForgedTicket
    rounds(300, within = 4_000)
  }

  test("interrupts in the middle of a stream") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(3_000))
    rounds(150, within = 30_000)
  }

  test("a job that is cancelled leaves no memory") {
    cluster.create("d", "t", TestTables.plain, TestTables.plainRows(3_000))
    cluster.beforeBatch = (_, _, _) => Thread.sleep(5)
    val frame = spark.table(s"${catalog()}.d.t")
    (1 to 3).foreach { _ =>
      cluster.streams.clear()
      val canceller = new Thread(() => {
        eventually(assert(cluster.streams.size >= 2))
        spark.sparkContext.cancelAllJobs()
      })
      canceller.start()
      intercept[Exception](rows(frame))
      canceller.join()
      noMemoryIsHeld()
    }
  }
}
