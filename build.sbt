// The Scala half of the repository: the Spark connector and an example. Everything else is built by Cargo.
// One artifact per Spark line; dependency versions are those that Spark's own jars folder holds.
val sparkVersion = "4.2.0"
val sparkLine = "4.2"
val arrowVersion = "19.0.0" // the Arrow of Spark 4.2.0: Arrow is never bundled nor relocated

ThisBuild / scalaVersion := "2.13.18"
ThisBuild / organization := "org.isobar"
ThisBuild / version := "0.1.0"
ThisBuild / scalacOptions ++= Seq("-deprecation", "-feature", "-unchecked", "-release:17", "-Xlint:_", "-Werror")

lazy val root = (project in file("."))
  .aggregate(`spark-connector`, reconciliation)
  .settings(name := "isobar", publish / skip := true)

// Tests that run Spark in a process of their own.
lazy val sparkTests: Seq[Def.Setting[_]] = Seq(
  Test / fork := true,
  Test / parallelExecution := false,
  Test / baseDirectory := target.value, // Spark leaves spark-warehouse and metastore folders where it runs
  // What spark-submit passes by itself; Arrow needs java.nio.
  Test / javaOptions ++= Seq(
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar"
  ).map(name => s"--add-opens=java.base/$name=ALL-UNNAMED"),
  Test / javaOptions ++= Seq(
    "-Xmx1g",
    "-Duser.timezone=America/New_York" // a zone that is not UTC, so that a wrong conversion shows
  )
)

lazy val `spark-connector` = (project in file("spark-connector"))
  .settings(
    name := s"isobar-spark-$sparkLine",
    libraryDependencies ++= Seq(
      "org.apache.spark" %% "spark-sql" % sparkVersion % Provided,
      "org.apache.arrow" % "flight-core" % arrowVersion,
      "org.scalatest" %% "scalatest" % "3.2.19" % Test
    ),
    // src/it holds what needs a running Isobar or a Spark cluster; it compiles with the tests, so that it cannot rot.
    Test / unmanagedSourceDirectories += (Test / sourceDirectory).value.getParentFile / "it" / "scala",
    sparkTests,
    assembly / test := {},
    // No version in the name: scripts and the README point here.
    assembly / assemblyOutputPath :=
      target.value / s"isobar-spark-runtime-${sparkLine}_${scalaBinaryVersion.value}.jar",
    assembly / assemblyOption ~= (_.withIncludeScala(false)),
    // Spark's own jars folder has these; a second copy of Arrow in particular would break ArrowColumnVector.
    assembly / assemblyExcludedJars := (assembly / fullClasspath).value.filter { entry =>
      val provided = Seq(
        "arrow-",
        "netty-",
        "slf4j-",
        "jackson-",
        "flatbuffers",
        "guava",
        "gson",
        "failureaccess",
        "listenablefuture",
        "jsr305",
        "j2objc",
        "checker",
        "commons-",
        "jspecify",
        "error_prone",
        "animal-sniffer",
        "javax.annotation"
      )
      val jar = entry.data.getName
      jar != s"flight-core-$arrowVersion.jar" && provided.exists(prefix => jar.startsWith(prefix))
    },
    assembly / assemblyShadeRules := Seq("io.grpc", "com.google.protobuf", "io.perfmark").map { name =>
      ShadeRule.rename(s"$name.**" -> s"org.isobar.shaded.$name.@1").inAll
    },
    assembly / assemblyMergeStrategy := {
      case PathList("META-INF", "services", _*) => MergeStrategy.concat
      case PathList("META-INF", _*) => MergeStrategy.discard
      case path if path.endsWith(".proto") || path.endsWith("module-info.class") => MergeStrategy.discard
      // Protocol definitions of other Google services that come along with gRPC and that nothing here uses.
      case PathList("com", "google", part, _*)
          if Set("apps", "shopping", "cloud", "geo", "logging", "longrunning", "rpc", "type", "api")(part) =>
        MergeStrategy.discard
      case path => (assembly / assemblyMergeStrategy).value(path)
    }
  )

// The comparison of examples/reconciliation in Scala. It needs no connector to compile: tables are tables.
lazy val reconciliation = (project in file("examples/reconciliation/scala"))
  .settings(
    name := "isobar-reconciliation",
    publish / skip := true,
    libraryDependencies ++= Seq(
      "org.apache.spark" %% "spark-sql" % sparkVersion % Provided,
      "org.scalatest" %% "scalatest" % "3.2.19" % Test
    ),
    // Spark's logs are as quiet as in the connector's tests.
    Test / unmanagedResourceDirectories += (`spark-connector` / Test / resourceDirectory).value,
    sparkTests
  )
