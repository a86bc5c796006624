//! Scenario scripts over a small cluster: each file of `scripts/` is a claim. `UPDATE_GOLDENFILES=1`
//! writes what happens now into them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use goldenscript::{ArgumentConsumer, Command, Context};
use support::{Faults, World, name, record, reference, table};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use txn::api::{Expect, Mode, Mutation, Op, Request, Response, Taking, Waiting};
use txn::layout::{DataRecord, Fate, HistRecord};
use txn::share::shared_key;
use txn::{Acquired, Floors, Sweep, Transaction, TxnClient};
use types::{Error, Timestamp};

struct Scripts {
    runtime: Runtime,
    world: Arc<World>,
    client: TxnClient,
    version: u32,
    open: BTreeMap<String, Transaction>,
    /// Transactions that wait for rows in the background.
    waiting: BTreeMap<String, JoinHandle<(Transaction, types::Result<Acquired>)>>,
    /// Timestamps by name: a transaction's start, or `name.commit`.
    times: BTreeMap<String, Timestamp>,
}

impl Scripts {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (world, client) = {
            let _entered = runtime.enter();
            let world = World::new(1, 2, &["m"], Faults::default());
            // Whoever waits for a lock's time to be over asks for the time.
            world.tick.store(500, std::sync::atomic::Ordering::Relaxed);
            (world.clone(), world.client())
        };
        Scripts {
            runtime,
            world,
            client,
            version: 1,
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    fn ts(&self, text: &str) -> Timestamp {
        match text {
            "now" => self.world.timestamp(),
            text => match text.strip_suffix(".prev") {
                Some(text) => self.times[text].prev(),
                None => self.times[text],
            },
        }
    }

    /// The name of a timestamp, if it has one.
    fn named(&self, ts: Timestamp) -> String {
        let named = self.times.iter().find(|(_, known)| **known == ts);
        named.map_or_else(|| "?".to_owned(), |(name, _)| name.clone())
    }

    fn explain(&self, error: &Error) -> String {
        match error {
            Error::Conflict { key, start, committed } => format!(
                "Conflict on {} (began {}, newer {})",
                name(key),
                self.named(*start),
                self.named(*committed)
            ),
            Error::Locked(lock) => format!(
                "Locked {} by {} (primary {})",
                name(&lock.key),
                self.named(lock.start_ts),
                name(&lock.primary)
            ),
            Error::Duplicate { index, key } => format!("Duplicate {} in {index}", name(key)),
            Error::Deadlock(start) => format!("Deadlock, {} gives way", self.named(*start)),
            Error::Held { holder, .. } => format!("Held by {}", self.named(*holder)),
            Error::LockWait { holder, .. } => format!("LockWait for {}", self.named(*holder)),
            Error::LockBusy(holder) => format!("LockBusy by {}", self.named(*holder)),
            Error::SnapshotTooOld { ts, floor } => {
                format!("TooOld {} (kept from {})", self.named(*ts), self.named(*floor))
            }
            Error::RolledBack(start) => format!("RolledBack {}", self.named(*start)),
            Error::StaleEpoch { current, .. } => {
                let regions: Vec<_> = current
                    .iter()
                    .map(|region| format!("{}..{}", name(&region.start), name(&region.end)))
                    .collect();
                format!("StaleEpoch, now {}", regions.join(" "))
            }
            Error::SchemaChanged { sent, known, .. } => {
                format!("SchemaChanged sent={sent} known={known:?}")
            }
            other => other.to_string(),
        }
    }

    fn shown<T>(&self, result: types::Result<T>) -> Result<T, Box<dyn StdError>> {
        result.map_err(|error| self.explain(&error).into())
    }

    fn answer(&self, response: Response) -> Result<String, Box<dyn StdError>> {
        Ok(match response {
            Response::Failed(error) => return Err(self.explain(&error).into()),
            Response::Done => "done".into(),
            Response::Fate(Some(ts)) => format!("committed at {}", self.named(ts)),
            Response::Fate(None) => "rolled back".into(),
            Response::Applied(index) => format!("applied {index}"),
            Response::TableGone(table) => format!("table {table} is gone"),
            Response::Alive(left) => format!("alive for {left} ms"),
            Response::LockedFrom(ts) => format!("locked, from {}", self.named(ts)),
            Response::Pending { secondaries, min_commit_ts, left } => {
                let others: Vec<_> = secondaries.iter().map(|key| name(key)).collect();
                let (others, from) = (others.join(" "), self.named(min_commit_ts));
                format!("pending from {from} for {left} ms, with {others}")
            }
            Response::Secondaries(standing) => format!("{standing:?}"),
            Response::Leader { leader, term } => format!("led by {leader:?} in term {term}"),
            Response::Pairs { pairs, resume } | Response::ByReplica { pairs, resume, .. } => {
                let resume = resume.map(|key| format!(" … {}", name(&key).escape_debug()));
                format!("{}{}", list(&pairs), resume.unwrap_or_default())
            }
            Response::Acquired { found, locked, behind } => {
                let found = found.iter().map(|one| name(&one.key)).collect::<Vec<_>>().join(" ");
                let locked = locked.iter().map(|lock| format!(" locked {}", name(&lock.key)));
                let behind = behind.map(|ts| format!(" behind {}", self.named(ts)));
                let locked = locked.collect::<String>();
                format!("holds {found}{locked}{}", behind.unwrap_or_default())
            }
            Response::Keys(keys) => keys.iter().map(|key| name(key)).collect::<Vec<_>>().join(" "),
            Response::Regions(regions) => regions
                .iter()
                .map(|region| {
                    format!(
                        "{}..{} version {}",
                        name(&region.start),
                        name(&region.end),
                        region.epoch.version
                    )
                })
                .collect::<Vec<_>>()
                .join("\n"),
        })
    }

    /// Sends a request about a key straight to its leader.
    fn send(&self, key: &str, request: impl FnOnce(txn::api::RegionRef) -> Request) -> Response {
        let (node, region) = self.world.home(&record(key));
        let request = request(reference(&region));
        self.runtime.block_on(node.service.handle(request))
    }

    /// What row locks brought: rows as they are now.
    fn acquired(&self, result: types::Result<Acquired>) -> Result<String, Box<dyn StdError>> {
        let Acquired { rows, newer } = self.shown(result)?;
        let mut out: Vec<_> = rows
            .iter()
            .map(|one| match (&one.row, one.live) {
                (Some(row), _) => format!("{}={}", name(&one.key), text(row)),
                (None, true) => name(&one.key),
                (None, false) => format!("{} is free", name(&one.key)),
            })
            .collect();
        out.extend(newer.map(|ts| format!("newer at {}", self.named(ts))));
        Ok(if out.is_empty() { "nothing".into() } else { out.join(" ") })
    }

    /// Raises the floor of a key's region, after resolving older locks if asked to.
    fn collect(&self, key: &str, floors: Floors, resolve: bool) -> types::Result<()> {
        let (node, region) = self.world.home(&record(key));
        self.runtime.block_on(async {
            let locks = node.service.older_locks(region.id, floors.read, 100);
            if resolve && !locks.is_empty() {
                self.client.resolve(&locks, floors.read).await?;
            }
            node.service.collect(region.id, floors).await
        })
    }

    /// Removes what may go, on every node; how many records that were.
    fn sweep(&self) -> u64 {
        let mut removed = 0;
        for node in self.world.nodes.values() {
            for view in node.store.regions() {
                let Some(mut sweep) = Sweep::new(&node.store, view.region.id) else { continue };
                while node.store.sweep(&mut sweep).unwrap() {}
                removed += sweep.removed();
            }
        }
        removed
    }

    fn transaction(&mut self, context: &Context) -> (String, &mut Transaction) {
        let name = context.prefix.clone().expect("name the transaction: t1: …");
        let open = self.open.get_mut(&name).expect("the transaction is not open");
        (name, open)
    }

    /// Everything stored, by key.
    fn dump(&self) -> String {
        let mut out = String::new();
        for node in self.world.nodes.values() {
            let kv = node.store.snapshot();
            let all = [u8::MAX; 8];
            for pair in kv.scan(kv::Keyspace::Data, &[], &all) {
                let (key, value) = pair.unwrap();
                let record = DataRecord::decode(value).unwrap();
                let _ = write!(out, "{} =", name(&key));
                if record.commit_ts > Timestamp::ZERO {
                    let row = record.row.as_deref().map_or("deleted".into(), text);
                    let _ = write!(out, " {row} @{}", self.named(record.commit_ts));
                }
                if record.held_ts > Timestamp::ZERO {
                    let _ = write!(out, " held @{}", self.named(record.held_ts));
                }
                if record.shared_ts > Timestamp::ZERO {
                    let _ = write!(out, " shared @{}", self.named(record.shared_ts));
                }
                let _ = writeln!(out);
            }
            for pair in kv.scan(kv::Keyspace::Hist, &[], &all) {
                let (key, value) = pair.unwrap();
                let (key, ts) = txn::layout::split_hist_key(&key).unwrap();
                let record = HistRecord::decode(value).unwrap();
                let row = record.row.as_deref().map_or("deleted".into(), text);
                let _ = writeln!(out, "  older {} = {row} @{}", name(&key), self.named(ts));
            }
            for pair in kv.scan(kv::Keyspace::Lock, &[], &all) {
                let (key, value) = pair.unwrap();
                let lock = txn::locks::Lock::decode(&value).unwrap();
                let _ = writeln!(
                    out,
                    "  lock {} {:?} by {} primary {} replaces {}",
                    name(&key),
                    lock.kind,
                    self.named(lock.start_ts),
                    name(&lock.primary),
                    lock.replaces.map_or("nothing".into(), |ts| self.named(ts)),
                );
            }
            for pair in kv.scan(kv::Keyspace::Fate, &[], &all) {
                let (key, value) = pair.unwrap();
                let (key, start) = txn::layout::split_fate_key(&key).unwrap();
                let fate = match Fate::decode(&value).unwrap() {
                    Fate::Committed(ts) => format!("committed @{}", self.named(ts)),
                    Fate::RolledBack => "rolled back".into(),
                };
                let (key, shared) = match shared_key(&key, start) {
                    Some(shared) => (name(shared), " shared"),
                    None => (name(&key), ""),
                };
                let _ = writeln!(out, "  fate {key}{shared} of {}: {fate}", self.named(start));
            }
        }
        out
    }
}

fn rest<'a>(args: &mut ArgumentConsumer<'a>) -> Vec<&'a str> {
    std::iter::from_fn(|| args.next_pos()).collect()
}

fn option<T: std::str::FromStr>(
    args: &mut ArgumentConsumer<'_>,
    name: &str,
) -> Result<Option<T>, T::Err> {
    args.take_key(name).map(str::parse).transpose()
}

fn expectation(args: &mut ArgumentConsumer<'_>) -> Expect {
    match args.take_key("expect") {
        Some("rows") => Expect::Rows,
        Some("norows") => Expect::NoRows,
        _ => Expect::Nothing,
    }
}

fn text(row: &[u8]) -> String {
    String::from_utf8_lossy(row).into_owned()
}

fn list(pairs: &[(Vec<u8>, Vec<u8>)]) -> String {
    if pairs.is_empty() {
        return "nothing".into();
    }
    let pairs: Vec<_> =
        pairs.iter().map(|(key, row)| format!("{}={}", name(key), text(row))).collect();
    pairs.join(" ")
}

/// `x@1` puts, `new.x@1` inserts, `del.x` deletes, `hold.x` holds.
fn mutation(arg: &str) -> Mutation {
    if let Some(key) = arg.strip_prefix("del.") {
        return Mutation { key: record(key), op: Op::Delete, for_update_ts: None };
    }
    if let Some(key) = arg.strip_prefix("hold.") {
        return Mutation { key: record(key), op: Op::Lock, for_update_ts: None };
    }
    let (key, row) = arg.split_once('@').expect("key@row");
    let row = row.as_bytes().to_vec();
    match key.strip_prefix("new.") {
        Some(key) => Mutation { key: record(key), op: Op::Insert(row), for_update_ts: None },
        None => Mutation { key: record(key), op: Op::Put(row), for_update_ts: None },
    }
}

impl goldenscript::Runner for Scripts {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> Result<String, Box<dyn StdError>> {
        let mut args = command.consume_args();
        let table = table(self.version);
        match command.name.as_str() {
            // Transactions through the client.
            "begin" => {
                let name = context.prefix.clone().expect("name the transaction");
                let transaction = self.runtime.block_on(self.client.begin())?;
                self.times.insert(name.clone(), transaction.start_ts());
                self.open.insert(name, transaction);
                Ok(String::new())
            }
            "write" => {
                let mutations: Vec<_> = rest(&mut args).into_iter().map(mutation).collect();
                let transaction = self.transaction(context).1;
                let mut result = Ok(());
                for Mutation { key, op, .. } in mutations {
                    result = result.and(match op {
                        Op::Put(row) => transaction.put(&table, key, row),
                        Op::Insert(row) => transaction.insert(&table, key, row),
                        Op::Delete => transaction.delete(&table, key),
                        Op::Lock => transaction.lock(&table, key),
                        Op::Share => unreachable!("no change is a share"),
                    });
                }
                self.shown(result).map(|()| String::new())
            }
            "get" => {
                let keys = rest(&mut args).into_iter().map(record).collect();
                let name = context.prefix.clone().expect("name the transaction");
                let open = self.open.get(&name).expect("open");
                let pairs = self.runtime.block_on(open.batch_get(keys));
                self.shown(pairs).map(|pairs| list(&pairs))
            }
            // Row locks; `later` waits in the background until `acquired`.
            "acquire" => {
                let name = context.prefix.clone().expect("name the transaction");
                let waiting = match args.take_key("wait").unwrap_or("50000") {
                    "no" => Waiting::No,
                    "skip" => Waiting::Skip,
                    ms => Waiting::For(ms.parse()?),
                };
                let read_at = args.take_key("read_at").map(|text| self.ts(text));
                let expect = expectation(&mut args);
                let shared = option(&mut args, "shared")?.unwrap_or(false);
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let taking = Taking { mode, waiting, expect };
                let later = option(&mut args, "later")?.unwrap_or(false);
                let keys = rest(&mut args).into_iter().map(record).collect();
                let mut open = self.open.remove(&name).expect("open");
                let work = async move {
                    let acquired = open.acquire(&table, keys, taking, read_at).await;
                    (open, acquired)
                };
                if later {
                    self.waiting.insert(name, self.runtime.spawn(work));
                    let pause = async { tokio::time::sleep(Duration::from_millis(40)).await };
                    self.runtime.block_on(pause);
                    return Ok(String::new());
                }
                let began = tokio::time::Instant::now();
                let (open, acquired) = self.runtime.block_on(work);
                let waited = began.elapsed() > Duration::from_secs(1);
                assert!(!waited || matches!(waiting, Waiting::For(_)), "NOWAIT has waited");
                self.open.insert(name, open);
                self.acquired(acquired)
            }
            "acquired" => {
                let name = context.prefix.clone().expect("name the transaction");
                let waiting = self.waiting.remove(&name).expect("it waits");
                let bound = Duration::from_secs(10);
                let (open, acquired) = self
                    .runtime
                    .block_on(async { tokio::time::timeout(bound, waiting).await.unwrap() })?;
                self.open.insert(name, open);
                self.acquired(acquired)
            }
            "waits" => {
                let name = context.prefix.clone().expect("name the transaction");
                Ok(if self.waiting[&name].is_finished() { "no" } else { "yes" }.into())
            }
            "rollback" => {
                let name = context.prefix.clone().expect("name the transaction");
                let open = self.open.remove(&name).expect("open");
                self.runtime.block_on(open.rollback());
                self.runtime.block_on(self.client.settle());
                Ok(String::new())
            }
            "scan" => {
                let reverse = option(&mut args, "reverse")?.unwrap_or(false);
                let page = option(&mut args, "page")?.unwrap_or(16);
                let (start, end) = (record(""), types::key::records_end(support::TABLE));
                let open = self.transaction(context).1;
                let scan = open.scan(start, end, reverse).page_pairs(page);
                let pairs = self.runtime.block_on(scan.collect());
                self.shown(pairs).map(|pairs| list(&pairs))
            }
            "commit" => {
                let name = context.prefix.clone().expect("name the transaction");
                let open = self.open.remove(&name).expect("open");
                let committed = self.runtime.block_on(open.commit());
                if option(&mut args, "settle")?.unwrap_or(true) {
                    self.runtime.block_on(self.client.settle());
                }
                let committed = self.shown(committed)?;
                self.times.insert(format!("{name}.commit"), committed);
                Ok("committed".into())
            }
            // The same, but the client crashes before its n-th call to a row node.
            "crash" => {
                let name = context.prefix.clone().expect("name the transaction");
                let mutations: Vec<_> = rest(&mut args).into_iter().map(mutation).collect();
                let calls = option(&mut args, "calls")?.unwrap_or(0);
                let _entered = self.runtime.enter();
                let link = self.world.link();
                let client = self.world.client_over(link.clone());
                let mut transaction = self.runtime.block_on(client.begin())?;
                self.times.insert(name.clone(), transaction.start_ts());
                for Mutation { key, op, .. } in mutations {
                    match op {
                        Op::Put(row) => transaction.put(&table, key, row)?,
                        Op::Insert(row) => transaction.insert(&table, key, row)?,
                        Op::Delete => transaction.delete(&table, key)?,
                        Op::Lock => transaction.lock(&table, key)?,
                        Op::Share => unreachable!("no change is a share"),
                    }
                }
                link.die_after(calls);
                let work = async move {
                    let limit = Duration::from_millis(10);
                    tokio::time::timeout(limit, transaction.commit()).await
                };
                let outcome = self.runtime.block_on(work);
                if let Ok(Ok(commit_ts)) = outcome {
                    self.times.insert(format!("{name}.commit"), commit_ts);
                    return Ok("committed, then crashed".into());
                }
                Ok("crashed".into())
            }
            // Single requests, as a coordinator sends them.
            "prewrite" => {
                let name = context.prefix.clone().expect("name the transaction");
                let primary = record(args.take_key("primary").expect("primary"));
                let version = option(&mut args, "version")?.unwrap_or(self.version);
                let ttl = option(&mut args, "ttl")?.unwrap_or(3_000);
                let fresh = self.world.timestamp();
                let start_ts = *self.times.entry(name).or_insert(fresh);
                let mutations: Vec<_> = rest(&mut args).into_iter().map(mutation).collect();
                let key = support::name(&mutations[0].key);
                let response = self.send(&key, |region| Request::Prewrite {
                    region,
                    start_ts,
                    primary,
                    mutations,
                    ttl,
                    schema: (support::TABLE, version),
                    wait: 0,
                });
                self.answer(response)
            }
            "commit_keys" => {
                let name = context.prefix.clone().expect("name the transaction");
                let start_ts = self.times[&name];
                let fresh = self.world.timestamp();
                let commit_ts = *self.times.entry(format!("{name}.commit")).or_insert(fresh);
                let keys: Vec<_> = rest(&mut args).into_iter().map(record).collect();
                let response = self.send(&support::name(&keys[0]), |region| Request::Commit {
                    region,
                    start_ts,
                    commit_ts,
                    keys,
                });
                self.answer(response)
            }
            // Versions of one timestamp without a transaction.
            "import" => {
                let name = context.prefix.clone().expect("name the import");
                let version = option(&mut args, "version")?.unwrap_or(self.version);
                let anew = option::<bool>(&mut args, "anew")?.unwrap_or(false);
                let fresh = self.world.timestamp();
                let commit_ts = *self.times.entry(name).or_insert(fresh);
                let rows = rest(&mut args).into_iter().map(|arg| {
                    let Mutation { key, op: Op::Put(row), .. } = mutation(arg) else {
                        panic!("an import puts");
                    };
                    (key, row)
                });
                let rows: Vec<_> = rows.collect();
                let response = self.send(&support::name(&rows[0].0), |region| Request::Import {
                    region,
                    commit_ts,
                    rows,
                    schema: (support::TABLE, version),
                    anew,
                });
                self.answer(response)
            }
            "rollback_keys" => {
                let start_ts = self.ts(context.prefix.as_deref().expect("name"));
                let keys: Vec<_> = rest(&mut args).into_iter().map(record).collect();
                let response = self.send(&support::name(&keys[0]), |region| Request::Rollback {
                    region,
                    start_ts,
                    keys,
                });
                self.answer(response)
            }
            "status" => {
                let start_ts = self.ts(context.prefix.as_deref().expect("name"));
                let key = args.next_pos().expect("primary").to_owned();
                let now = self.world.timestamp();
                let ttl = option(&mut args, "ttl")?.unwrap_or(0);
                let primary = record(&key);
                let response = self.send(&key, |region| Request::CheckStatus {
                    region,
                    primary,
                    start_ts,
                    now,
                    ttl,
                });
                self.answer(response)
            }
            "keep_alive" => {
                let start_ts = self.ts(context.prefix.as_deref().expect("name"));
                let ttl = option(&mut args, "ttl")?.expect("ttl");
                let key = args.next_pos().expect("primary").to_owned();
                let primary = record(&key);
                let response =
                    self.send(&key, |region| Request::KeepAlive { region, primary, start_ts, ttl });
                self.answer(response)
            }
            "schema" => {
                let key = args.next_pos().expect("key").to_owned();
                let version = option(&mut args, "version")?.expect("version");
                let described = Box::new(types::Table::clone(&support::table(version)));
                let response =
                    self.send(&key, |region| Request::Schema { region, table: described });
                self.answer(response)
            }
            // Reads outside of transactions.
            "read" => {
                let at = args.take_key("at").unwrap_or("now");
                let ts = self.ts(at);
                let keys: Vec<_> = rest(&mut args).into_iter().map(record).collect();
                let snapshot = self.client.snapshot(ts);
                let pairs = self.runtime.block_on(snapshot.batch_get(keys));
                self.shown(pairs).map(|pairs| list(&pairs))
            }
            // One answer of a leader, without getting over anything.
            "look" => {
                let ts = self.ts(args.take_key("at").unwrap_or("now"));
                let limit = option(&mut args, "limit")?.unwrap_or(100);
                let reverse = option(&mut args, "reverse")?.unwrap_or(false);
                let key = args.next_pos().expect("key").to_owned();
                let (start, end) = (record(""), types::key::records_end(support::TABLE));
                let response = self.send(&key, |region| Request::Scan {
                    region,
                    start,
                    end,
                    ts,
                    limit,
                    bytes: 1 << 20,
                    reverse,
                });
                self.answer(response)
            }
            "split" => {
                let key = args.next_pos().expect("key").to_owned();
                self.runtime.block_on(self.world.split(&record(&key)))?;
                Ok(String::new())
            }
            "split_keys" => {
                let key = args.next_pos().expect("key").to_owned();
                let parts = option(&mut args, "parts")?.expect("parts");
                let response = self.send(&key, |region| Request::SplitKeys { region, parts });
                self.answer(response)
            }
            "elect" => {
                let key = args.next_pos().expect("key").to_owned();
                let handed_over = option(&mut args, "handed_over")?.unwrap_or(false);
                self.runtime.block_on(self.world.elect(&record(&key), handed_over));
                Ok(String::new())
            }
            // Row locks from a leader that no quorum confirms.
            "alone" => {
                let key = args.next_pos().expect("key").to_owned();
                let keys = vec![record(&key)];
                let expect = expectation(&mut args);
                let groups = self.world.home(&record(&key)).0.groups.clone();
                groups.alone.store(true, std::sync::atomic::Ordering::Relaxed);
                let (start_ts, waiting) = (self.world.timestamp(), Waiting::No);
                let (hold, rows) = (1, true);
                let response = self.send(&key, |region| Request::Acquire {
                    region,
                    start_ts,
                    keys,
                    hold,
                    waiting,
                    rows,
                    expect,
                });
                groups.alone.store(false, std::sync::atomic::Ordering::Relaxed);
                self.answer(response)
            }
            "advance" => {
                let ms = args.next_pos().expect("ms").parse()?;
                self.world.advanced.fetch_add(ms, std::sync::atomic::Ordering::Relaxed);
                Ok(String::new())
            }
            // Lets what goes on in the background go on.
            "pause" => {
                let pause = async { tokio::time::sleep(Duration::from_millis(20)).await };
                self.runtime.block_on(pause);
                Ok(String::new())
            }
            "version" => {
                self.version = args.next_pos().expect("version").parse()?;
                Ok(String::new())
            }
            // Garbage collection.
            "collect" => {
                let read = self.ts(args.take_key("at").expect("at"));
                let settled = args.take_key("settled").map_or(Timestamp::ZERO, |ts| self.ts(ts));
                let resolve = option(&mut args, "resolve")?.unwrap_or(true);
                let mut result = Ok(());
                for key in rest(&mut args) {
                    let floors = Floors { read, settled };
                    result = result.and(self.collect(key, floors, resolve));
                }
                self.shown(result).map(|()| String::new())
            }
            "sweep" => Ok(format!("{} removed", self.sweep())),
            "dump" => Ok(self.dump()),
            other => Err(format!("unknown command {other}").into()),
        }
    }
}

#[test]
fn scripts() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut ran = 0;
    for entry in std::fs::read_dir(scripts).unwrap() {
        let path = entry.unwrap().path();
        goldenscript::run(&mut Scripts::new(), &path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        ran += 1;
    }
    assert!(ran >= 12, "the scripts are missing");
}
