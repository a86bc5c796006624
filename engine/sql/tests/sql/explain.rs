//! What EXPLAIN says of queries on rows, as scripts: `run` a statement, `explain` a query. How many partitions a plan has
//! depends on the machine and is left out. `UPDATE_GOLDENFILES=1` writes the results anew.

use std::error::Error;
use std::path::Path;

use goldenscript::{Command, Context, Runner};
use sql::session::Session;
use tokio::runtime::Handle;

use super::harness::{done, engine, in_database, rows};

struct Explain {
    runtime: Handle,
    session: Session,
}

impl Runner for Explain {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let text = args.next_pos().ok_or("a statement is missing")?;
        args.reject_next()?;
        let session = &mut self.session;
        match command.name.as_str() {
            "run" => {
                self.runtime.block_on(done(session, text))?;
                Ok(String::new())
            }
            "explain" => {
                let lines = self.runtime.block_on(rows(session, &format!("EXPLAIN {text}")))?;
                Ok(lines.iter().map(|line| format!("{}\n", without_partitions(line))).collect())
            }
            other => Err(format!("no command '{other}'").into()),
        }
    }
}

/// A line of a plan with `n` in the place of each number of partitions.
fn without_partitions(line: &str) -> String {
    let mut line = line.to_owned();
    for before in ["RoundRobinBatch(", "], ", "input_partitions=", "partitions="] {
        let mut from = 0;
        while let Some(at) = line[from..].find(before) {
            let start = from + at + before.len();
            let digits = line[start..].chars().take_while(char::is_ascii_digit).count();
            let is_count =
                digits > 0 && (before != "], " || line[start + digits..].starts_with(')'));
            if is_count {
                line.replace_range(start..start + digits, "n");
            }
            from = start;
        }
    }
    line
}

#[test]
fn queries_on_rows_are_planned_so() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for script in std::fs::read_dir(scripts).unwrap() {
        let script = script.unwrap().path();
        println!("{}", script.display());
        let session = runtime.block_on(in_database(&engine()));
        let mut explain = Explain { runtime: runtime.handle().clone(), session };
        goldenscript::run(&mut explain, script).unwrap();
    }
}
