//! TPC-C: nine tables, five transactions, the mix and the conditions of its standard (revision 5.11).
//!
//! Its numbers are no TPC results: there are no terminals, no screens and no audit.

mod conditions;
mod draw;
mod fill;
mod orders;
mod payments;
mod schema;

use std::time::Duration;

use anyhow::{Context, Result};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Params, Row};
use rand::Rng;

use crate::latency::Ending;
use crate::random::Random;
use crate::target::Target;

pub use conditions::Broken;

/// How large the tables are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Customers of a district, and as many first orders: 3,000 in the standard.
    pub customers: u32,
    /// Items, and stock of a warehouse: 100,000 in the standard.
    pub items: u32,
}

impl Scale {
    /// So many warehouses, with a fraction of the standard's customers and items.
    pub fn new(warehouses: u32, fraction: f64) -> Self {
        let part = |of: f64| (of * fraction.clamp(0.001, 1.0)).round() as u32;
        Scale {
            warehouses: warehouses.max(1),
            customers: part(3_000.0).max(10),
            items: part(100_000.0).max(100),
        }
    }

    /// Whether customers and items are as many as the standard asks for.
    pub fn is_standard(&self) -> bool {
        (self.customers, self.items) == (3_000, 100_000)
    }

    /// The first of a district's orders that are not delivered: the last 900 of 3,000.
    fn first_new_order(&self) -> u32 {
        self.customers * 7 / 10 + 1
    }
}

/// How the transactions run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tables' sizes.
    pub scale: Scale,
    /// Whether reads that precede writes lock.
    pub for_update: bool,
    /// Whether keying and think times are kept.
    pub think: bool,
}

/// TPC-C at one scale.
#[derive(Debug)]
pub struct Tpcc {
    options: Options,
    constants: draw::Constants,
}

/// A transaction with its inputs.
#[derive(Clone, Debug)]
pub enum Plan {
    /// A customer orders five to fifteen items.
    NewOrder(orders::NewOrder),
    /// A customer pays.
    Payment(payments::Payment),
    /// A customer asks for the last order.
    OrderStatus(payments::OrderStatus),
    /// The oldest order of each district is delivered.
    Delivery(orders::Delivery),
    /// How many of the last sold items run low.
    StockLevel(orders::StockLevel),
}

impl Plan {
    /// The standard's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Plan::NewOrder(_) => "new-order",
            Plan::Payment(_) => "payment",
            Plan::OrderStatus(_) => "order-status",
            Plan::Delivery(_) => "delivery",
            Plan::StockLevel(_) => "stock-level",
        }
    }
}

impl Tpcc {
    /// TPC-C with these options; the seed fixes the standard's run constants.
    pub fn new(options: Options, seed: u64) -> Self {
        Tpcc { options, constants: draw::Constants::new(seed) }
    }

    /// The options.
    pub fn options(&self) -> Options {
        self.options
    }

    fn locking(&self) -> &'static str {
        if self.options.for_update { " FOR UPDATE" } else { "" }
    }

    /// Draws a transaction: 45 % new orders, 43 % payments, 4 % of each other.
    pub fn draw(&self, random: &mut Random) -> Plan {
        match random.random_range(0..100) {
            0..45 => Plan::NewOrder(self.draw_new_order(random)),
            45..88 => Plan::Payment(self.draw_payment(random)),
            88..92 => Plan::OrderStatus(self.draw_order_status(random)),
            92..96 => Plan::Delivery(self.draw_delivery(random)),
            _ => Plan::StockLevel(self.draw_stock_level(random)),
        }
    }

    /// Runs one.
    pub async fn run(&self, conn: &mut Conn, plan: &Plan) -> Result<Ending, Error> {
        conn.query_drop("BEGIN").await?;
        let ending = match plan {
            Plan::NewOrder(plan) => self.new_order(conn, plan).await?,
            Plan::Payment(plan) => self.payment(conn, plan).await?,
            Plan::OrderStatus(plan) => self.order_status(conn, plan).await?,
            Plan::Delivery(plan) => self.delivery(conn, plan).await?,
            Plan::StockLevel(plan) => self.stock_level(conn, plan).await?,
        };
        let last = if ending == Ending::Done { "COMMIT" } else { "ROLLBACK" };
        conn.query_drop(last).await?;
        Ok(ending)
    }

    /// Keying time before a transaction and think time after it (clause 5.2.5.7), if kept.
    pub fn pauses(&self, plan: &Plan, random: &mut Random) -> (Duration, Duration) {
        if !self.options.think {
            return (Duration::ZERO, Duration::ZERO);
        }
        let (keying, think) = match plan {
            Plan::NewOrder(_) => (18, 12.0),
            Plan::Payment(_) => (3, 12.0),
            Plan::OrderStatus(_) => (2, 10.0),
            Plan::Delivery(_) | Plan::StockLevel(_) => (2, 5.0),
        };
        let drawn = -(1.0 - random.random::<f64>()).ln() * think;
        (Duration::from_secs(keying), Duration::from_secs_f64(drawn.min(10.0 * think)))
    }

    /// Makes and fills the tables; those of an earlier run are dropped.
    pub async fn prepare(&self, target: &Target, connections: usize, seed: u64) -> Result<u64> {
        self.cleanup(target).await?;
        let mut conn = target.connect_and_create().await?;
        for (table, create) in schema::TABLES {
            conn.query_drop(*create).await.with_context(|| format!("cannot make {table}"))?;
        }
        let parts = fill::parts(self.options.scale, &self.constants);
        crate::workload::load::load(target, parts, connections, seed).await
    }

    /// Drops the tables.
    pub async fn cleanup(&self, target: &Target) -> Result<()> {
        let mut conn = target.connect_and_create().await?;
        for table in Self::tables() {
            conn.query_drop(format!("DROP TABLE IF EXISTS {table}"))
                .await
                .with_context(|| format!("cannot drop {table}"))?;
        }
        Ok(())
    }

    /// How large it is, in words.
    pub fn size(&self) -> String {
        let Scale { warehouses, customers, items } = self.options.scale;
        let note = if self.options.scale.is_standard() {
            ""
        } else {
            ", fewer than the standard asks for"
        };
        format!(
            "{warehouses} warehouses of 10 districts with {customers} customers, {items} items{note}"
        )
    }

    /// Names of the tables.
    pub fn tables() -> Vec<String> {
        schema::TABLES.iter().map(|(table, _)| (*table).to_owned()).collect()
    }

    /// Checks the consistency conditions of clause 3.3.2, and returns which do not hold.
    pub async fn check(&self, target: &Target) -> Result<Vec<Broken>> {
        conditions::check(target).await
    }
}

/// The first row of an answer.
async fn first<T: FromRow>(
    conn: &mut Conn,
    text: &str,
    parameters: impl Into<Params> + Send,
) -> Result<Option<T>, Error> {
    let row: Option<Row> = conn.exec_first(text, parameters).await?;
    row.map(converted).transpose()
}

/// The one row that must be there.
async fn one<T: FromRow>(
    conn: &mut Conn,
    text: &str,
    parameters: impl Into<Params> + Send,
) -> Result<T, Error> {
    first(conn, text, parameters)
        .await?
        .ok_or_else(|| Error::Other(format!("no row for: {text}").into()))
}

/// All rows of an answer.
async fn all<T: FromRow>(
    conn: &mut Conn,
    text: &str,
    parameters: impl Into<Params> + Send,
) -> Result<Vec<T>, Error> {
    let rows: Vec<Row> = conn.exec(text, parameters).await?;
    rows.into_iter().map(converted).collect()
}

fn converted<T: FromRow>(row: Row) -> Result<T, Error> {
    mysql_async::from_row_opt(row).map_err(|error| Error::Other(Box::new(error)))
}

/// Cents as a decimal's text.
fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100)
}

/// Cents from a decimal's text; what is no number counts as none.
fn cents(text: &str) -> i64 {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let part: String = part.chars().chain("00".chars()).take(2).collect();
    let (whole, part) = (whole.parse().unwrap_or(0_i64), part.parse().unwrap_or(0_i64));
    sign * (whole.saturating_mul(100).saturating_add(part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::stream;

    fn tpcc(warehouses: u32) -> Tpcc {
        let options = Options { scale: Scale::new(warehouses, 1.0), for_update: true, think: true };
        Tpcc::new(options, 1)
    }

    #[test]
    fn the_mix_is_the_standards() {
        let tpcc = tpcc(4);
        let mut random = stream(9, 9);
        let (mut kinds, mut rolled_back, mut remote, mut named) = (BTreeMap::new(), 0, 0, 0);
        for _ in 0..40_000 {
            let plan = tpcc.draw(&mut random);
            *kinds.entry(plan.kind()).or_insert(0) += 1;
            match &plan {
                Plan::NewOrder(order) => rolled_back += u32::from(order.has_unused_item(100_000)),
                Plan::Payment(payment) => {
                    remote += u32::from(payment.is_remote());
                    named += u32::from(payment.is_by_name());
                }
                _ => {}
            }
        }
        let percent = |count: u32, of: u32| f64::from(count) / f64::from(of) * 100.0;
        assert!((44.0..46.0).contains(&percent(kinds["new-order"], 40_000)), "{kinds:?}");
        assert!((42.0..44.0).contains(&percent(kinds["payment"], 40_000)), "{kinds:?}");
        for other in ["order-status", "delivery", "stock-level"] {
            assert!((3.5..4.5).contains(&percent(kinds[other], 40_000)), "{kinds:?}");
        }
        assert!((0.7..1.3).contains(&percent(rolled_back, kinds["new-order"])), "{rolled_back}");
        assert!((14.0..16.0).contains(&percent(remote, kinds["payment"])), "{remote}");
        assert!((59.0..61.0).contains(&percent(named, kinds["payment"])), "{named}");
    }

    #[test]
    fn money_keeps_its_cents() {
        for (text, number) in
            [("0.00", 0), ("12.34", 1_234), ("-10.05", -1_005), ("7", 700), ("0.5", 50)]
        {
            assert_eq!(cents(text), number);
        }
        assert_eq!((money(-1_005), money(5)), ("-10.05".to_owned(), "0.05".to_owned()));
    }

    #[test]
    fn think_times_have_their_mean() {
        let tpcc = tpcc(1);
        let mut random = stream(2, 2);
        let plan = Plan::Payment(tpcc.draw_payment(&mut random));
        let sum: f64 = (0..20_000).map(|_| tpcc.pauses(&plan, &mut random).1.as_secs_f64()).sum();
        assert!((11.5..12.5).contains(&(sum / 20_000.0)), "{}", sum / 20_000.0);
    }
}
