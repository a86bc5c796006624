// sbt-assembly builds the one shaded jar that users hand to Spark; sbt-scalafmt keeps the layout of the sources.
addSbtPlugin("com.eed3si9n" % "sbt-assembly" % "2.3.1")
addSbtPlugin("org.scalameta" % "sbt-scalafmt" % "2.5.5")
