//! Scenario scripts: facts in, rows at several timestamps out.

use std::error::Error;
use std::path::Path;

use goldenscript::{Command, Context};
use txn::{Fact, WriteKind};
use types::{RegionId, Timestamp};

use super::harness::{Cells, REGION, World, key_of, narrowed, small, widened};
use crate::compaction::{Merge, Merged};
use crate::shared::Config;

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/scripts");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none() {
            goldenscript::run(&mut Script::new(), path).unwrap();
            count += 1;
        }
    }
    assert!(count >= 8, "only {count} scripts were found");
}

struct Script {
    world: World,
    merge: Option<(RegionId, Merge, Merged)>,
    /// Entries are decided, but not applied.
    behind: bool,
}

type Out = Result<String, Box<dyn Error>>;

impl Script {
    fn new() -> Self {
        let config = Config { delta_rows: 1_000, ..small() };
        Script { world: World::new(config), merge: None, behind: false }
    }

    fn row(&self, id: i64, v: i64) -> (Cells, Vec<u8>) {
        let newest = self.world.schemas.len() - 1;
        self.world.encode(id, v, None, newest)
    }

    fn log(&mut self, id: i64, facts: Vec<Fact>, context: &Context) -> Out {
        let region = self.world.region_of(id);
        match context.tags.contains("stale") {
            true => self.world.append_stale(region, facts, true),
            false => self.world.append(region, facts),
        }
        if !self.behind {
            self.world.catch_up()?;
        }
        Ok(String::new())
    }

    fn rows(&self, ts: u64) -> Out {
        let mut out = String::new();
        for region in self.world.groups.keys() {
            let rows = self.world.store.visible_rows(*region, Timestamp(ts));
            let rows = match rows {
                Ok(rows) => rows
                    .into_values()
                    .map(|row| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(error) => error.to_string(),
            };
            out.push_str(&format!("@{ts} region {region}: {rows}\n"));
        }
        Ok(out)
    }

    fn tablets(&self) -> Out {
        let mut out = String::new();
        for region in self.world.groups.keys() {
            let Some(tablet) = self.world.store.tablets.get(*region) else { continue };
            let state = tablet.lock();
            let part = |part: &crate::tablet::Part| {
                format!("{}..{} dead {}", part.from, part.to, part.deletions.len())
            };
            let parts: Vec<String> = state.parts.iter().map(part).collect();
            out.push_str(&format!(
                "region {region}: applied {} durable {} delta {} parts [{}] pending {} floor {}\n",
                state.applied.index,
                state.durable,
                state.delta.rows(),
                parts.join(", "),
                state.pending.len(),
                state.floor,
            ));
        }
        out.push_str(&format!("files {}\n", self.world.files().len()));
        Ok(out)
    }

    fn merge(&mut self, step: &str, region: RegionId, safe: u64) -> Out {
        let tablet = self.world.store.tablets.get(region).ok_or("no such tablet")?;
        if step == "begin" {
            let Some(merge) = tablet.plan_merge(Timestamp(safe)) else {
                return Ok("nothing to merge\n".into());
            };
            let merged = tablet.merge(&merge)?;
            self.merge = Some((region, merge, merged));
        } else if let Some((region, merge, merged)) = self.merge.take() {
            let tablet = self.world.store.tablets.get(region).ok_or("no such tablet")?;
            tablet.install_merge(&merge, &merged)?;
        }
        Ok(String::new())
    }
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn start_script(&mut self) -> Result<(), Box<dyn Error>> {
        *self = Script::new();
        Ok(())
    }

    fn run(&mut self, command: &Command, context: &Context) -> Out {
        let mut args = command.consume_args();
        let mut number = |key: &str| args.take_key(key).map(str::parse::<i64>).transpose();
        let id = number("id")?.unwrap_or_default();
        let v = number("v")?;
        let start = number("start")?.unwrap_or_default() as u64;
        let at = number("at")?.unwrap_or_default() as u64;
        let region = number("region")?.map_or(REGION, |region| region as u64);
        let safe = number("safe")?.unwrap_or_default() as u64;
        let name = args.take_key("name").unwrap_or_default();
        let word = args.next_pos();
        match command.name.as_str() {
            // A whole transaction in one entry.
            "set" | "delete" => {
                let row = v.map(|v| self.row(id, v));
                let kind = if row.is_some() { WriteKind::Put } else { WriteKind::Delete };
                let lock = self.world.lock(id, at - 1, kind, row);
                let commit = self.world.commit(id, at);
                self.log(id, vec![lock, commit], context)
            }
            "lock" => {
                let kind = match word {
                    Some("bare") => WriteKind::Lock,
                    Some("delete") => WriteKind::Delete,
                    _ => WriteKind::Put,
                };
                let row = v.map(|v| self.row(id, v));
                let lock = self.world.lock(id, start, kind, row);
                self.log(id, vec![lock], context)
            }
            "commit" => {
                let fact = self.world.commit(id, at);
                self.log(id, vec![fact], context)
            }
            "rollback" => {
                let fact = self.world.rollback(id, start);
                self.log(id, vec![fact], context)
            }
            "import" => {
                let row = v.map(|v| self.row(id, v));
                let fact = self.world.import(id, at, row);
                self.log(id, vec![fact], context)
            }
            // A fact that no leader decides: it names a version that never was.
            "forge" => {
                let (_, row) = self.row(id, 0);
                let fact = Fact::Write {
                    key: key_of(id),
                    commit_ts: Timestamp(at),
                    kind: WriteKind::Put,
                    row: Some(row),
                    replaces: Some(Timestamp(start)),
                };
                self.log(id, vec![fact], context)
            }
            "split" => {
                let parent = self.world.region_of(id);
                self.world.split(parent, &[(id, region)]);
                self.world.catch_up()?;
                Ok(String::new())
            }
            // The leader has split, but the node has not applied it.
            "decide-split" => {
                let parent = self.world.region_of(id);
                self.world.split(parent, &[(id, region)]);
                self.behind = true;
                Ok(String::new())
            }
            "apply" => {
                self.behind = false;
                self.world.catch_up()?;
                Ok(String::new())
            }
            "create" => Ok(self.world.create(region).map(|()| String::new())?),
            // From a leader that has removed what was superseded before `safe`.
            "snapshot" => Ok(self.world.resnapshot_from(region, safe).map(|()| String::new())?),
            "alter" => {
                let newest = self.world.schemas.last().ok_or("no schema")?.clone();
                let table = match word {
                    Some("drop") => narrowed(&newest, name),
                    _ => widened(&newest, name, v.unwrap_or_default()),
                };
                self.world.alter(table);
                self.world.catch_up()?;
                Ok(String::new())
            }
            "flush" => Ok(self.world.persist(region).map(|()| String::new())?),
            "restart" => {
                self.world.crash(at)?;
                self.world.catch_up()?;
                Ok(String::new())
            }
            "merge" => self.merge(word.unwrap_or_default(), region, safe),
            "maintain" => {
                let mut steps = 0;
                while self.world.store.maintain(Timestamp(safe))? {
                    steps += 1;
                }
                Ok(format!("{steps} steps\n"))
            }
            "rows" => self.rows(at),
            "tablets" => self.tablets(),
            "locks" => {
                let tablet = self.world.store.tablet(region).ok_or("no such tablet")?;
                let starts = tablet.pending_locks(Timestamp(at));
                let starts: Vec<String> = starts.iter().map(|l| l.start_ts.to_string()).collect();
                Ok(format!("started at: {}\n", starts.join(" ")))
            }
            name => Err(format!("unknown command {name}").into()),
        }
    }
}
