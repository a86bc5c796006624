//! The `mariadb` command line as a client.

use std::io::{Seek, Write};
use std::time::Duration;

use tokio::process::Command;
use wire::Options;

use crate::backend::{ALL_TYPES_TEXT, Running, start, with_tls};

/// How a client program ended.
#[derive(Debug)]
pub struct Outcome {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

/// Whether a client program is there. Without it a test is skipped by name, unless
/// `REQUIRE_CLIENTS=1`.
pub fn present(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        let required = std::env::var("REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
        assert!(!required, "{program} is required and not installed");
        println!("skipped: {program} is not installed");
    }
    found
}

/// Runs a client program to its end, at most a minute.
pub async fn run(command: Command) -> Outcome {
    run_with(command, "").await
}

/// Runs a client program on some input.
async fn run_with(mut command: Command, input: &str) -> Outcome {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input.as_bytes()).unwrap();
    file.rewind().unwrap();
    command.stdin(file).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("the client hangs").expect("the client starts");
    Outcome {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn mariadb(server: &Running, user: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "--host=127.0.0.1", "--batch", "--skip-column-names"])
        .arg(format!("--port={}", server.port()))
        .arg(format!("--user={user}"))
        .args(arguments);
    command
}

async fn run_client(server: &Running, user: &str, arguments: &[&str]) -> Outcome {
    run(mariadb(server, user, arguments)).await
}

#[tokio::test]
async fn mariadb_reads_every_type_as_text() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    let answer = run_client(&server, "root", &["-e", "SELECT * FROM types; SELECT NULL"]).await;
    assert!(answer.ok, "{answer:?}");
    let nulls = vec!["NULL"; 23].join("\t");
    let expected = format!("{}\n{}\n{nulls}\nNULL\n", ALL_TYPES_TEXT[0], ALL_TYPES_TEXT[1]);
    assert_eq!(answer.out, expected);
}

#[tokio::test]
async fn mariadb_logs_in_by_password_and_not_without() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    for plugin in ["mysql_native_password", "caching_sha2_password"] {
        for user in ["alice", "nora", "nate", "shay"] {
            let method = format!("--default-auth={plugin}");
            let answer =
                run_client(&server, user, &[&method, "-psecret", "-e", "SELECT who"]).await;
            assert!(answer.ok && answer.out.starts_with(user), "{plugin} {user} {answer:?}");
            for wrong in ["-pwrong", "--skip-password"] {
                let answer = run_client(&server, user, &[&method, wrong, "-e", "SELECT 1"]).await;
                assert!(!answer.ok && answer.err.contains("ERROR 1045 (28000)"), "{answer:?}");
            }
        }
    }
    let answer = run_client(&server, "nobody", &["-psecret", "-e", "SELECT 1"]).await;
    assert!(answer.err.contains("Access denied for user 'nobody'@'127.0.0.1'"), "{answer:?}");
    let answer = run_client(&server, "root", &["-psecret", "-e", "SELECT 1"]).await;
    assert!(answer.err.contains("ERROR 1045 (28000)"), "{answer:?}");
}

#[tokio::test]
async fn mariadb_encrypts_when_asked_to() {
    if !present("mariadb") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = start(with_tls(directory.path())).await;
    for (switch, tls) in [("--ssl", "true"), ("--skip-ssl", "false")] {
        let answer = run_client(&server, "nate", &[switch, "-psecret", "-e", "SELECT who"]).await;
        assert!(answer.ok, "{switch} {answer:?}");
        assert_eq!(answer.out.split('\t').nth(1), Some(tls), "{switch} {answer:?}");
    }
    // The certificate is the one in the data directory, for those who check it.
    let authority = format!("--ssl-ca={}", directory.path().join("server-cert.pem").display());
    let checked = [&authority, "--ssl-verify-server-cert", "-psecret", "-e", "SELECT who"];
    let answer = run(mariadb(&server, "alice", &checked)).await;
    assert!(answer.ok, "{answer:?}");
}

#[tokio::test]
async fn mariadb_sees_errors_databases_and_statistics() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    let answer = run_client(&server, "root", &["-e", "SELECT 1; NONSENSE; SELECT 1"]).await;
    assert_eq!((answer.ok, answer.out.as_str()), (false, "1\n"));
    assert!(answer.err.contains("ERROR 1064 (42000)"), "{answer:?}");
    let answer = run_client(
        &server,
        "root",
        &["shop", "-e", "SELECT DATABASE(); USE depot; SELECT DATABASE()"],
    );
    assert_eq!(answer.await.out, "shop\ndepot\n");
    let answer = run_client(&server, "root", &["nowhere", "-e", "SELECT 1"]).await;
    assert!(answer.err.contains("ERROR 1049 (42000): Unknown database 'nowhere'"), "{answer:?}");
    let answer = run_client(&server, "root", &["-vvv", "-e", "INSERT"]).await;
    assert!(answer.out.contains("3 rows affected, 2 warnings"), "{answer:?}");
    assert!(answer.out.contains("Records: 3  Duplicates: 0  Warnings: 2"), "{answer:?}");
    let answer = run_client(&server, "root", &["-e", "status"]).await;
    assert!(
        answer.out.contains("8.0.11-isobar-") && answer.out.contains("Questions: "),
        "{answer:?}"
    );
}

#[tokio::test]
async fn mariadb_reads_big_rows_and_many() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    let mib20 = 20 * 1024 * 1024;
    let big = format!("SELECT bytes {mib20}; SELECT 1");
    let answer = run_client(&server, "root", &["--max-allowed-packet=64M", "-e", &big]).await;
    assert!(answer.ok, "{}", answer.err);
    assert_eq!(answer.out.len(), mib20 + "\n1\n".len());
    // Exactly one full packet, and around it.
    for length in [16_777_205, 16_777_210, 16_777_211, 16_777_212] {
        let sql = format!("SELECT bytes {length}");
        let answer = run_client(&server, "root", &["--max-allowed-packet=64M", "-e", &sql]).await;
        assert_eq!((answer.ok, answer.out.len()), (true, length + 1), "{}", answer.err);
    }
    let answer = run_client(&server, "root", &["--quick", "-e", "SELECT rows 100000"]).await;
    assert!(answer.ok, "{}", answer.err);
    assert_eq!(answer.out.lines().count(), 100_000);
    assert!(answer.out.lines().last().unwrap().starts_with("99999\tx"));
}

#[tokio::test]
async fn mariadb_sends_files() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines.csv");
    std::fs::write(&file, "1,2\n".repeat(500_000)).unwrap();
    let sql = format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE t; SELECT 1", file.display());
    let answer = run_client(&server, "root", &["--local-infile=1", "-vvv", "-e", &sql]).await;
    assert!(answer.out.contains("500000 rows affected"), "{answer:?}");
    assert!(answer.out.contains("2000000 bytes") && answer.ok, "{answer:?}");
    std::fs::write(&file, format!("bad{}", "1,2\n".repeat(500_000))).unwrap();
    let goes_on = async |switch: &str, file: &str| {
        let client = mariadb(&server, "root", &[switch, "--force"]);
        let sql = format!("LOAD DATA LOCAL INFILE '{file}' INTO TABLE t; SELECT 1;");
        let answer = run_with(client, &sql).await;
        assert_eq!(answer.out, "1\n", "{answer:?}");
        answer.err
    };
    let bad = file.display().to_string();
    assert!(goes_on("--local-infile=1", &bad).await.contains("ERROR 1262 (01000)"));
    assert!(goes_on("--local-infile=0", &bad).await.contains("ERROR 3948 (42000)"));
    assert!(goes_on("--local-infile=1", "/no/such/file").await.contains("not found"));
}

#[tokio::test]
async fn mariadb_describes_columns() {
    if !present("mariadb") {
        return;
    }
    let server = start(Options::default()).await;
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--column-type-info", "--table"])
        .arg(format!("--port={}", server.port()))
        .args(["-e", "SELECT * FROM types"]);
    let answer = run(command).await;
    assert!(answer.ok, "{answer:?}");
    let wanted = |line: &&str| {
        ["Type:", "Collation:", "Length:", "Decimals:", "Flags:", "Field "]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let value = |line: &str| line.split_once(':').unwrap().1.trim().to_owned();
    let lines: Vec<String> = answer.out.lines().filter(wanted).map(value).collect();
    let fields: Vec<String> =
        lines.chunks(6).map(|field| field.join(" | ").trim().to_owned()).collect();
    assert_eq!(fields, COLUMN_TYPES);
    assert!(
        answer.out.contains("Database:   `test`") && answer.out.contains("Org_table:  `types`")
    );
}

/// What MySQL 8.0 says of columns of these types, but for the collation of texts (there it is the
/// connection's) and NUM, which its own client adds.
const COLUMN_TYPES: [&str; 23] = [
    "`i8` | TINY | binary (63) | 4 | 0 | BINARY NUM",
    "`u8` | TINY | binary (63) | 3 | 0 | UNSIGNED BINARY NUM",
    "`i16` | SHORT | binary (63) | 6 | 0 | BINARY NUM",
    "`u16` | SHORT | binary (63) | 5 | 0 | UNSIGNED BINARY NUM",
    "`i24` | INT24 | binary (63) | 9 | 0 | BINARY NUM",
    "`u24` | INT24 | binary (63) | 8 | 0 | UNSIGNED BINARY NUM",
    "`i32` | LONG | binary (63) | 11 | 0 | BINARY NUM",
    "`u32` | LONG | binary (63) | 10 | 0 | UNSIGNED BINARY NUM",
    "`i64` | LONGLONG | binary (63) | 20 | 0 | BINARY NUM",
    "`u64` | LONGLONG | binary (63) | 20 | 0 | UNSIGNED BINARY NUM",
    "`f64` | DOUBLE | binary (63) | 22 | 31 | BINARY NUM",
    "`dec` | NEWDECIMAL | binary (63) | 14 | 3 | BINARY NUM",
    "`c` | STRING | utf8mb4_general_ci (45) | 16 | 0 |",
    "`v` | VAR_STRING | utf8mb4_general_ci (45) | 80 | 0 |",
    "`x` | BLOB | utf8mb4_general_ci (45) | 262140 | 0 | BLOB",
    "`d` | DATE | binary (63) | 10 | 0 | BINARY",
    "`dt` | DATETIME | binary (63) | 19 | 0 | BINARY",
    "`dt6` | DATETIME | binary (63) | 26 | 6 | BINARY",
    "`ts3` | TIMESTAMP | binary (63) | 23 | 3 | BINARY TIMESTAMP",
    "`js` | ?-unknown-? | binary (63) | 4294967295 | 0 | BLOB BINARY",
    "`wide` | NEWDECIMAL | binary (63) | 67 | 30 | BINARY NUM",
    "`en` | STRING | utf8mb4_general_ci (45) | 20 | 0 | ENUM",
    "`st` | STRING | utf8mb4_general_ci (45) | 32 | 0 | SET",
];
