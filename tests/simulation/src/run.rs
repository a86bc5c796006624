//! One seed, one history: sets a cluster up, lets clients and faults loose on it, and judges.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use env::Random;
use placement::api::CatalogChange;
use tokio::time::{Instant, sleep, timeout};
use types::{Error, Result, TableId};

use crate::faults::{FAULTS, Nemesis};
use crate::history::History;
use crate::nodes::FIRST_ROWS;
use crate::settle::{Totals, settle};
use crate::table::{self, DATABASE};
use crate::world::{Kind, Shape, World};
use crate::{readers, workload};

/// How long a cluster without faults may take to be set up.
const SET_UP: Duration = Duration::from_secs(60);
/// How many times as long as asked a history goes on at most where few transactions were tried.
const LONGEST: u64 = 10;
/// Workers of a client.
const WORKERS: u64 = 3;
/// How long versions live without a lease, in milliseconds: histories are short.
const LIFE_MS: u64 = 5_000;

thread_local! {
    /// Panics of the history that runs on this thread, if one does.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// What to run.
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// Simulated seconds under faults, at least.
    pub seconds: u64,
    /// Transactions that clients try, at least: faults go on until then.
    pub transactions: u64,
    /// Names of the faults that may come.
    pub faults: BTreeSet<String>,
    /// Where every event is written as a line, if anywhere.
    pub trace: Option<Box<dyn Write + Send>>,
}

impl Options {
    /// A seed with every fault.
    pub fn new(seed: u64, seconds: u64) -> Self {
        let faults = FAULTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        Options { seed, seconds, transactions: 0, faults, trace: None }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Hash of every message, answer and fault, and how many those were.
    pub hash: u64,
    /// Events.
    pub events: u64,
    /// Transactions, reads and comparisons.
    pub totals: Totals,
    /// Faults by what the system was doing.
    pub faults: BTreeMap<(&'static str, &'static str), u64>,
    /// How many those were: one may meet the system in several states.
    pub brought: u64,
    /// What is wrong; nothing if all is well.
    pub failures: Vec<String>,
}

impl Report {
    /// Of a history that says nothing but what went wrong with it.
    pub fn failed(seed: u64, why: String) -> Self {
        Report {
            seed,
            hash: 0,
            events: 0,
            totals: Totals::default(),
            faults: BTreeMap::new(),
            brought: 0,
            failures: vec![why],
        }
    }
}

/// Takes note of panics of simulated processes instead of printing them: their history fails with them.
pub fn note_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        // raft-engine panics where a sync fails, and raft-rs where the log cannot be read, as after a power
        // loss by the process that it ends: the log's and the peer's own guards take them for what they are.
        let text = panic.payload_as_str().unwrap_or_default();
        if place.contains("raft-engine") || text.contains("the simulated disk is down") {
            return;
        }
        let noted = PANICS.with_borrow_mut(|panics| {
            panics.as_mut().map(|panics| panics.push(panic.to_string())).is_some()
        });
        if !noted {
            usual(panic);
        }
    }));
}

/// Runs one seed.
pub fn run(options: Options) -> Report {
    PANICS.with_borrow_mut(|panics| *panics = Some(Vec::new()));
    let seed = options.seed;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut report = match runtime {
        Ok(runtime) => catch_unwind(AssertUnwindSafe(|| runtime.block_on(history(options))))
            .unwrap_or_else(|_| Report::failed(seed, "the history ended by a panic".into())),
        Err(error) => Report::failed(seed, format!("no runtime: {error}")),
    };
    report.failures.extend(PANICS.with_borrow_mut(Option::take).unwrap_or_default());
    report
}

async fn history(options: Options) -> Report {
    let (seed, history) = (options.seed, History::new(options.trace));
    let totals =
        match live(seed, (options.seconds, options.transactions), options.faults, history.clone())
            .await
        {
            Ok(totals) => totals,
            Err(what) => {
                history.fail(what);
                Totals::default()
            }
        };
    let (hash, events) = history.digest();
    let ((faults, brought), failures) = (history.counts(), history.failures());
    Report { seed, hash, events, totals, faults, brought, failures }
}

/// How long clients and faults go on.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    until: Instant,
    /// By then even if fewer transactions were tried.
    latest: Instant,
    transactions: u64,
}

impl Span {
    fn of(seconds: u64, transactions: u64) -> Self {
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        Span { until: after(seconds), latest: after(LONGEST * seconds), transactions }
    }

    pub(crate) fn goes_on(&self, world: &World) -> bool {
        let now = Instant::now();
        let lacking = || now < self.latest && world.ledger.ended() < self.transactions;
        !world.history.has_failed() && (now < self.until || lacking())
    }
}

fn shape(random: &Random) -> Shape {
    let rows = match random.below(10) {
        0..5 => 3,
        5..8 => 4,
        _ => 5,
    };
    Shape { rows, columns: 1 + random.below(2), clients: 2 + random.below(2) }
}

async fn live(
    seed: u64,
    (seconds, transactions): (u64, u64),
    faults: BTreeSet<String>,
    history: History,
) -> std::result::Result<Totals, String> {
    let random = Random::seeded(seed ^ 0x0015_0BA2);
    let shape = shape(&random);
    let world = World::new(seed, shape, history).map_err(|error| error.to_string())?;
    for kind in [Kind::Rows, Kind::Columns, Kind::Client] {
        for host in world.hosts(kind) {
            world.start_later(host, Duration::from_millis(random.below(100)));
        }
    }
    let watching = tokio::spawn(world.clone().watch_disks());
    let totals = match timeout(SET_UP, set_up(&world, shape)).await {
        Err(_) => Err("the cluster was not set up in time".to_owned()),
        Ok(Err(error)) => Err(format!("the cluster could not be set up: {error}")),
        Ok(Ok(table)) => {
            let span = Span::of(seconds, transactions);
            let mut tasks = Vec::new();
            for host in world.hosts(Kind::Client) {
                for _ in 0..WORKERS {
                    let work = workload::work(world.clone(), host, random.fork(), span);
                    tasks.push(tokio::spawn(work));
                }
                let read = readers::read(world.clone(), host, table, random.fork(), span);
                tasks.push(tokio::spawn(read));
            }
            let nemesis = Nemesis {
                world: world.clone(),
                random: random.fork(),
                enabled: faults,
                odd: 1 + random.below(FIRST_ROWS),
                span,
            };
            tasks.push(tokio::spawn(nemesis.run()));
            for task in tasks {
                // What has panicked is noted where panics are.
                let _ = task.await;
            }
            settle(&world, table).await
        }
    };
    watching.abort();
    world.end();
    totals
}

/// A database, a table with columns, short lives of versions, and the first rows.
async fn set_up(world: &Arc<World>, shape: Shape) -> Result<TableId> {
    let placement = world.placement();
    let nodes = shape.rows + shape.columns + shape.clients;
    loop {
        match placement.status().await {
            Ok(status) if status.nodes.len() as u64 >= nodes => break,
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    placement.change(CatalogChange::CreateDatabase(DATABASE.into())).await?;
    let description = Box::new(table::first(1));
    let created = placement.change(CatalogChange::CreateTable(description)).await?;
    let table = created.ok_or_else(|| Error::Corrupt("no table was created".into()))?;
    placement.set_life(Duration::from_millis(LIFE_MS)).await?;
    workload::fill(world).await?;
    world.history.event("set up", &[table.id]);
    Ok(table.id)
}
