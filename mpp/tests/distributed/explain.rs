//! Plans of queries on columns, as scripts: `explain` a query at the node that is asked, 11 if none is named.
//! `UPDATE_GOLDENFILES=1` writes the results anew.

use std::error::Error;
use std::path::Path;

use arrow_flight::Action;
use bytes::Bytes;
use futures::TryStreamExt;
use goldenscript::{Command, Context, Runner};
use tokio::runtime::Handle;
use types::NodeId;

use crate::cluster::Cluster;
use crate::data::cluster;

struct Explain(Cluster);

impl Runner for Explain {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let query = args.next_pos().ok_or("a query is missing")?.to_owned();
        let node: NodeId = args.take_key("node").unwrap_or("11").parse()?;
        args.reject_next()?;
        if command.name != "explain" {
            return Err(format!("no command '{}'", command.name).into());
        }
        let body = serde_json::json!({ "query": query, "database": "d", "analyze": false });
        let action = Action::new("explain", body.to_string());
        let explained = async {
            let mut client = self.0.client(node).await;
            client.do_action(action).await?.try_collect::<Vec<Bytes>>().await
        };
        let lines = tokio::task::block_in_place(|| Handle::current().block_on(explained))?;
        let lines: Vec<String> = serde_json::from_slice(&lines.concat())?;
        Ok(lines.iter().map(|line| format!("{line}\n")).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_on_columns_are_planned_so() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain");
    let mut explain = Explain(cluster().await);
    for script in std::fs::read_dir(scripts).unwrap() {
        let script = script.unwrap().path();
        println!("{}", script.display());
        goldenscript::run(&mut explain, script).unwrap();
    }
}
