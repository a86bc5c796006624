//! What the suites share: one Spark session, a fresh test cluster each, and the check that no memory is left over.
package org.isobar.spark

import scala.reflect.ClassTag

import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.scalatest.{Assertion, BeforeAndAfterAll, BeforeAndAfterEach}
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Millis, Seconds, Span}

abstract class SparkTest
    extends AnyFunSuite
    with BeforeAndAfterAll
    with BeforeAndAfterEach
    with Eventually
    with AdaptiveSparkPlanHelper {
  implicit override val patienceConfig: PatienceConfig =
    PatienceConfig(timeout = Span(10, Seconds), interval = Span(20, Millis))

  protected def nodes: Int = 2
  protected var cluster: TestCluster = _
  protected lazy val spark: SparkSession = SparkTest.session

  override def beforeEach(): Unit = cluster = new TestCluster(nodes)

  /** Every test ends with zero bytes on the connector's side, and on the server's. */
  override def afterEach(): Unit =
    try noMemoryIsHeld()
    finally cluster.close()

  protected def noMemoryIsHeld(): Assertion = eventually {
    assert(Connections.allocatedBytes == 0)
    assert(Connections.openAllocators.filter(_ != "driver").isEmpty, SparkTest.taskStacks)
    assert(cluster.allocator.getAllocatedMemory == 0)
  }

  /** Configures a catalog for this test's cluster under a name of its own, because Spark keeps catalogs for good. */
  protected def catalog(options: (String, String)*): String = {
    val name = s"c${SparkTest.counter.incrementAndGet()}"
    spark.conf.set(s"spark.sql.catalog.$name", classOf[IsobarCatalog].getName)
    val all = Map("endpoints" -> cluster.endpoints, "user" -> "ada", "password" -> "engine") ++ options
    all.foreach { case (key, value) => spark.conf.set(s"spark.sql.catalog.$name.$key", value) }
    name
  }

  protected def rows(frame: DataFrame): Seq[Row] = frame.collect().toSeq

  /** Operators of one kind in the plan that was run, adaptive stages and subqueries included. */
  protected def executed[T: ClassTag](frame: DataFrame): Seq[T] =
    collectWithSubqueries(frame.queryExecution.executedPlan) { case operator: T => operator }

  /** The connector's error that made this fail, wherever it is among the causes. */
  protected def isobarError(run: => Any): IsobarException = {
    val thrown = intercept[Throwable](run)
    Iterator
      .iterate(thrown)(_.getCause)
      .takeWhile(_ != null)
      .collectFirst { case found: IsobarException => found }
      .getOrElse(fail(s"no IsobarException among the causes of $thrown", thrown))
  }
}

object SparkTest {
  val counter = new java.util.concurrent.atomic.AtomicInteger

  /** Where Spark's tasks are now, for the message of a failed check. */
  def taskStacks: String = {
    import scala.jdk.CollectionConverters._
    Thread.getAllStackTraces.asScala
      .collect {
        case (thread, stack) if thread.getName.contains("task launch") =>
          s"${thread.getName}\n  ${stack.take(25).mkString("\n  ")}"
      }
      .mkString("\n")
  }

  /** Two cores; a task may fail once before the query fails. */
  lazy val session: SparkSession = SparkSession
    .builder()
    .master("local[2,2]")
    .appName("isobar")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.datetime.java8API.enabled", "true")
    .config("spark.sql.session.timeZone", "America/New_York")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
}
