//! Transactions as applications run them: transfers, lists that grow, registers, rows that come and go, rows only locked.
//!
//! Each that writes also inserts a row of its own number, by which its fate is known for certain in the end.

use std::sync::Arc;
use std::time::Duration;

use env::Random;
use placement::PlacementClient;
use tokio::time::sleep;
use txn::api::{Expect, Mode, Taking, Waiting};
use txn::{Transaction, TxnClient};
use types::{Error, Result, Table};

use crate::ledger::{Attempt, Held, Outcome};
use crate::network::Host;
use crate::run::Span;
use crate::table::{DATABASE, NAME, Said, encode, key_of};
use crate::world::World;

/// Rows by what they are for: first number and how many.
const ACCOUNTS: (i64, u64) = (1, 10);
const LISTS: (i64, u64) = (101, 6);
const REGISTERS: (i64, u64) = (201, 8);
const GUESTS: (i64, u64) = (301, 12);
/// What an account holds at first.
const BALANCE: i64 = 100;
/// Longest pause between two transactions of a worker, in milliseconds.
const PAUSE_MS: u64 = 700;
/// Longest wait for a row, in milliseconds.
const ROW_WAIT_MS: u64 = 3_000;
/// How long a client goes on trying, and waits for locks.
pub(crate) const BOUNDS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// A transaction being made.
struct Trial<'a> {
    world: &'a World,
    table: Arc<Table>,
    transaction: Transaction,
    attempt: &'a mut Attempt,
}

impl<'a> Trial<'a> {
    async fn begin(
        world: &'a World,
        (txn, placement): (&TxnClient, &PlacementClient),
        attempt: &'a mut Attempt,
    ) -> Result<Trial<'a>> {
        let transaction = txn.begin().await?;
        attempt.start_ts = transaction.start_ts();
        let catalog = placement.catalog().await?;
        let table = catalog.table_named(DATABASE, NAME).cloned();
        let table = table.ok_or_else(|| Error::not_found("table", NAME))?;
        world.schemas.lock().note(&table);
        Ok(Trial { world, table, transaction, attempt })
    }

    fn key(&self, id: i64) -> Vec<u8> {
        key_of(self.table.id, id)
    }

    fn said(&self, row: &[u8]) -> Said {
        match self.world.schemas.lock().said(row) {
            Ok(said) => said,
            Err(what) => {
                self.world.history.fail(format!("attempt {}: {what}", self.attempt.id));
                Said::default()
            }
        }
    }

    /// A row as of the transaction's start.
    async fn read(&mut self, id: i64) -> Result<Option<Said>> {
        let row = self.transaction.get(&self.key(id)).await?;
        let said = row.as_ref().map(|row| self.said(row));
        self.attempt.reads.insert(id, row);
        Ok(said)
    }

    /// Rows as they are now, locked.
    async fn hold(&mut self, ids: &[i64], mode: Mode) -> Result<Vec<Option<Said>>> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let keys = ids.iter().map(|id| self.key(*id)).collect();
        let waiting = Waiting::For(ROW_WAIT_MS);
        let taking = Taking { mode, waiting, expect: Expect::Nothing };
        let table = self.table.clone();
        let acquired = self.transaction.acquire(&table, keys, taking, None).await?;
        let mut all = Vec::new();
        for (id, current) in ids.into_iter().zip(acquired.rows) {
            all.push(current.row.as_ref().map(|row| self.said(row)));
            let held = Held { newest: current.newest, row: current.row };
            self.attempt.held.insert(id, held);
        }
        Ok(all)
    }

    fn put(&mut self, id: i64, said: &Said) -> Result<()> {
        let row = encode(&self.table, id, said);
        self.attempt.writes.insert(id, Some(row.clone()));
        let (table, key) = (self.table.clone(), self.key(id));
        self.transaction.put(&table, key, row)
    }

    fn insert(&mut self, id: i64, said: &Said) -> Result<()> {
        let row = encode(&self.table, id, said);
        self.attempt.writes.insert(id, Some(row.clone()));
        self.attempt.inserts.push(id);
        let (table, key) = (self.table.clone(), self.key(id));
        self.transaction.insert(&table, key, row)
    }

    fn delete(&mut self, id: i64) -> Result<()> {
        self.attempt.writes.insert(id, None);
        let (table, key) = (self.table.clone(), self.key(id));
        self.transaction.delete(&table, key)
    }

    /// Inserts the attempt's own row.
    fn mark(&mut self) -> Result<()> {
        let said = Said { number: self.attempt.id, text: self.attempt.what.to_owned() };
        self.insert(self.attempt.id, &said)
    }

    async fn commit(self) -> Result<types::Timestamp> {
        // From here on it may take place, whatever becomes of its client.
        self.world.ledger.note(self.attempt);
        self.transaction.commit().await
    }
}

/// Rows that everything else is about.
pub(crate) async fn fill(world: &World) -> Result<()> {
    let (txn, _) = world.operator();
    let placement = world.placement();
    let mut attempt = world.ledger.begin("setup");
    let mut trial = Trial::begin(world, (&txn, &placement), &mut attempt).await?;
    for (kind, number) in [(ACCOUNTS, BALANCE), (LISTS, 0), (REGISTERS, 0)] {
        for id in kind.0..kind.0 + kind.1 as i64 {
            trial.insert(id, &Said { number, text: String::new() })?;
        }
    }
    trial.mark()?;
    let at = trial.commit().await?;
    world.ledger.end(&mut attempt, Outcome::Committed(at));
    Ok(())
}

fn any(random: &Random, (first, count): (i64, u64)) -> i64 {
    first + random.below(count) as i64
}

fn two(random: &Random, kind: (i64, u64)) -> (i64, i64) {
    let one = any(random, kind);
    let other = kind.0 + (one - kind.0 + 1 + random.below(kind.1 - 1) as i64) % kind.1 as i64;
    (one, other)
}

const KINDS: [&str; 8] =
    ["transfer", "held transfer", "append", "register", "update", "guest", "lock", "insert"];

async fn carry_out(
    world: &World,
    clients: (&TxnClient, &PlacementClient),
    random: &Random,
    attempt: &mut Attempt,
) -> Result<types::Timestamp> {
    let mut trial = Trial::begin(world, clients, attempt).await?;
    match trial.attempt.what {
        "transfer" => transfer(&mut trial, random, false).await?,
        "held transfer" => transfer(&mut trial, random, true).await?,
        "append" => {
            let (one, other) = two(random, LISTS);
            let mut list = trial.read(one).await?.unwrap_or_default();
            trial.read(other).await?;
            list.number += 1;
            list.text = format!("{} {}", list.text, trial.attempt.id);
            trial.put(one, &list)?;
        }
        "register" => {
            let (one, other) = two(random, REGISTERS);
            let number = trial.attempt.id;
            trial.put(one, &Said { number, text: "blind".into() })?;
            trial.put(other, &Said { number, text: "blind".into() })?;
        }
        "update" => {
            let id = any(random, REGISTERS);
            if random.chance(0.3) {
                trial.hold(&[id], Mode::Shared).await?;
            }
            let said = trial.hold(&[id], Mode::Exclusive).await?;
            let said = said.into_iter().next().flatten().unwrap_or_default();
            trial.put(id, &Said { number: said.number + 1, text: "held".into() })?;
        }
        "guest" => guest(&mut trial, random).await?,
        "lock" => {
            let (one, other) = two(random, ACCOUNTS);
            let mode = if random.chance(0.5) { Mode::Shared } else { Mode::Exclusive };
            trial.hold(&[one], mode).await?;
            sleep(Duration::from_millis(random.below(400))).await;
            trial.hold(&[other], mode).await?;
            return trial.commit().await;
        }
        _ => {}
    }
    trial.mark()?;
    if random.chance(0.2) {
        // An application thinks.
        sleep(Duration::from_millis(random.below(2_000))).await;
    }
    trial.commit().await
}

async fn transfer(trial: &mut Trial<'_>, random: &Random, held: bool) -> Result<()> {
    let (from, to) = two(random, ACCOUNTS);
    let sum = random.below(20) as i64;
    let (poorer, richer) = if held {
        let mut rows = trial.hold(&[from, to], Mode::Exclusive).await?;
        if from > to {
            rows.reverse();
        }
        let mut rows = rows.into_iter().map(Option::unwrap_or_default);
        (rows.next().unwrap_or_default(), rows.next().unwrap_or_default())
    } else {
        let from = trial.read(from).await?;
        (from.unwrap_or_default(), trial.read(to).await?.unwrap_or_default())
    };
    trial.put(from, &Said { number: poorer.number - sum, ..poorer })?;
    trial.put(to, &Said { number: richer.number + sum, ..richer })
}

/// A row comes if it is not there, and else goes.
async fn guest(trial: &mut Trial<'_>, random: &Random) -> Result<()> {
    let id = any(random, GUESTS);
    let number = trial.attempt.id;
    match trial.read(id).await? {
        Some(_) => trial.delete(id),
        None => trial.insert(id, &Said { number, text: "guest".into() }),
    }
}

/// Whether an error is one that a client may be given under faults.
pub(crate) fn is_expected(error: &Error) -> bool {
    !matches!(error, Error::Corrupt(_) | Error::Invalid(_) | Error::Io(_) | Error::Exists { .. })
}

/// Runs transactions from a host until the time is over.
pub(crate) async fn work(world: Arc<World>, host: Host, random: Random, span: Span) {
    while span.goes_on(&world) {
        sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
        let Some((txn, placement, _, process)) = world.client(host) else { continue };
        if !process.running().await {
            continue;
        }
        let txn = txn.with_bounds(BOUNDS.0, BOUNDS.1);
        let what = KINDS.get(random.below(KINDS.len() as u64) as usize).copied();
        let mut attempt = world.ledger.begin(what.unwrap_or("insert"));
        let answer = {
            let _doing = world.doing("transactions");
            let clients = (&txn, &placement);
            tokio::select! {
                biased;
                () = process.died() => None,
                answer = carry_out(&world, clients, &random, &mut attempt) => Some(answer),
            }
        };
        // A dead client has no answer; what it may have begun is written down.
        let Some(answer) = answer else { continue };
        let outcome = match answer {
            Ok(at) => Outcome::Committed(at),
            Err(Error::OutcomeUnknown { .. }) => Outcome::Unknown,
            Err(error) => {
                if !is_expected(&error) {
                    world.history.fail(format!("{} {}: {error}", attempt.what, attempt.id));
                }
                world.history.event(&format!("refused {error}"), &[attempt.id as u64]);
                Outcome::Refused
            }
        };
        let at = if let Outcome::Committed(at) = outcome { at.0 } else { 0 };
        world.history.event(attempt.what, &[host, attempt.id as u64, attempt.start_ts.0, at]);
        world.ledger.end(&mut attempt, outcome);
    }
}
