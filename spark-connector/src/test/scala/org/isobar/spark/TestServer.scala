//! The test cluster as a program, for trying the runtime jar without a real Isobar:
//! `project/sbt "spark-connector/Test/runMain org.isobar.spark.TestServer 4100"`.
//! Must never be part of the runtime jar.
package org.isobar.spark

object TestServer {

  /** Arguments: the first port (the second node gets the next one); optionally the file that is written once both nodes
    * answer.
    */
  def main(arguments: Array[String]): Unit = {
    val cluster = new TestCluster(nodes = 2, batchRows = 1000, firstPort = arguments.headOption.fold(4100)(_.toInt))
    cluster.create("test", "every_type", TestTables.everyType, TestTables.everyTypeRows)
    cluster.create("test", "numbers", TestTables.plain, TestTables.plainRows(100_000))
    println(s"test.every_type and test.numbers at ${cluster.endpoints}, user root without a password")
    arguments.lift(1).foreach(file => java.nio.file.Files.writeString(java.nio.file.Path.of(file), cluster.endpoints))
    Thread.currentThread.join()
  }
}
