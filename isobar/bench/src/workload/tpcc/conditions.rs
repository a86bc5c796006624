//! The consistency conditions of clause 3.3.2, each a query for rows that break it.
//!
//! Condition 11 holds only for freshly loaded tables (its count of 2,100 ignores deliveries), and is left out.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};
use serde::Serialize;

use crate::target::Target;

/// How long one condition may take to check.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    /// Its number in clause 3.3.2.
    pub condition: u32,
    /// What it says.
    pub says: &'static str,
    /// Rows that break it, up to three.
    pub rows: Vec<String>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "condition {} (clause 3.3.2.{}) is violated: {}",
            self.condition, self.condition, self.says
        )?;
        for row in &self.rows {
            write!(f, "\n    {row}")?;
        }
        Ok(())
    }
}

/// What a customer's delivered orders come to.
const DELIVERED: &str = "(SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS total FROM orders JOIN order_line \
     ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
     GROUP BY o_w_id, o_d_id, o_c_id) AS delivered \
     ON delivered.o_w_id = c_w_id AND delivered.o_d_id = c_d_id AND delivered.o_c_id = c_id";

/// Number, what it says, and the query for rows that break it; `{DELIVERED}` stands for [`DELIVERED`].
const CONDITIONS: &[(u32, &str, &str)] = &[
    (
        1,
        "w_ytd is the sum of its districts' d_ytd",
        "SELECT w_id, w_ytd, SUM(d_ytd) AS districts FROM warehouse JOIN district ON d_w_id = w_id \
         GROUP BY w_id, w_ytd HAVING w_ytd <> SUM(d_ytd) LIMIT 3",
    ),
    (
        2,
        "d_next_o_id - 1 is the largest order, and the largest new order",
        "SELECT d_w_id, d_id, d_next_o_id, o.most, n.most FROM district \
         JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS most FROM orders GROUP BY o_w_id, o_d_id) AS o \
         ON o.o_w_id = d_w_id AND o.o_d_id = d_id \
         LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS most FROM new_order GROUP BY no_w_id, no_d_id) AS n \
         ON n.no_w_id = d_w_id AND n.no_d_id = d_id \
         WHERE d_next_o_id - 1 <> o.most OR d_next_o_id - 1 <> n.most LIMIT 3",
    ),
    (
        3,
        "new orders of a district have no gaps",
        "SELECT no_w_id, no_d_id, MIN(no_o_id) AS least, MAX(no_o_id) AS most, COUNT(*) AS n FROM new_order \
         GROUP BY no_w_id, no_d_id HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*) LIMIT 3",
    ),
    (
        4,
        "the sum of o_ol_cnt is the number of order lines of a district",
        "SELECT o.o_w_id, o.o_d_id, o.total, l.n FROM \
         (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS total FROM orders GROUP BY o_w_id, o_d_id) AS o JOIN \
         (SELECT ol_w_id, ol_d_id, COUNT(*) AS n FROM order_line GROUP BY ol_w_id, ol_d_id) AS l \
         ON l.ol_w_id = o.o_w_id AND l.ol_d_id = o.o_d_id WHERE o.total <> l.n LIMIT 3",
    ),
    (
        5,
        "an order has no carrier exactly if it is a new order",
        "SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders LEFT JOIN new_order \
         ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL AND no_o_id IS NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL) \
         LIMIT 3",
    ),
    (
        6,
        "o_ol_cnt is the number of an order's lines",
        "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, l.n FROM orders LEFT JOIN \
         (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS n FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) AS l \
         ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id \
         WHERE o_ol_cnt <> COALESCE(l.n, 0) LIMIT 3",
    ),
    (
        7,
        "a line has no delivery date exactly if its order has no carrier",
        "SELECT ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, o_carrier_id FROM order_line JOIN orders \
         ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
         WHERE (ol_delivery_d IS NULL AND o_carrier_id IS NOT NULL) \
         OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NULL) LIMIT 3",
    ),
    (
        8,
        "w_ytd is the sum of its history",
        "SELECT w_id, w_ytd, h.total FROM warehouse JOIN \
         (SELECT h_w_id, SUM(h_amount) AS total FROM history GROUP BY h_w_id) AS h ON h.h_w_id = w_id \
         WHERE w_ytd <> h.total LIMIT 3",
    ),
    (
        9,
        "d_ytd is the sum of its history",
        "SELECT d_w_id, d_id, d_ytd, h.total FROM district JOIN \
         (SELECT h_w_id, h_d_id, SUM(h_amount) AS total FROM history GROUP BY h_w_id, h_d_id) AS h \
         ON h.h_w_id = d_w_id AND h.h_d_id = d_id WHERE d_ytd <> h.total LIMIT 3",
    ),
    (
        10,
        "c_balance is what was delivered less what was paid",
        "SELECT c_w_id, c_d_id, c_id, c_balance, delivered.total, h.total FROM customer LEFT JOIN {DELIVERED} \
             LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS total FROM history \
             GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h \
             ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id \
             WHERE c_balance <> COALESCE(delivered.total, 0) - COALESCE(h.total, 0) LIMIT 3",
    ),
    (
        12,
        "c_balance and c_ytd_payment come to what was delivered",
        "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered.total FROM customer \
             LEFT JOIN {DELIVERED} WHERE c_balance + c_ytd_payment <> COALESCE(delivered.total, 0) LIMIT 3",
    ),
];

/// Asks for all of them.
pub async fn check(target: &Target) -> Result<Vec<Broken>> {
    let mut conn = target.connect().await.context("cannot connect to check TPC-C's conditions")?;
    let mut broken = Vec::new();
    for &(condition, says, query) in CONDITIONS {
        let query = query.replace("{DELIVERED}", DELIVERED);
        let rows: Vec<Row> = tokio::time::timeout(TIMEOUT, conn.query(query))
            .await
            .map_err(|_| anyhow!("condition {condition} could not be checked within 10 minutes"))?
            .with_context(|| format!("condition {condition} could not be checked"))?;
        if !rows.is_empty() {
            broken.push(Broken { condition, says, rows: rows.iter().map(shown).collect() });
        }
    }
    Ok(broken)
}

fn shown(row: &Row) -> String {
    let columns = row.columns_ref().iter().enumerate();
    let cells = columns.map(|(at, column)| {
        let value = match row.as_ref(at) {
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(value) => value.as_sql(true),
            None => String::new(),
        };
        format!("{} = {value}", column.name_str())
    });
    cells.collect::<Vec<String>>().join(", ")
}
