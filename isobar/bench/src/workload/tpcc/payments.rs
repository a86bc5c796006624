//! Payment and Order-Status (clauses 2.5 and 2.6): a customer by number, or the middle one of a last name.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};
use rand::Rng;

use super::draw::{last_name, most_names};
use super::fill::DISTRICTS;
use super::{Tpcc, all, first, money, one};
use crate::latency::Ending;
use crate::random::Random;

/// How a customer is named.
#[derive(Clone, Debug)]
enum Who {
    Number(u32),
    Name(String),
}

/// A Payment's inputs.
#[derive(Clone, Debug)]
pub struct Payment {
    warehouse: u32,
    district: u32,
    customer_warehouse: u32,
    customer_district: u32,
    who: Who,
    cents: i64,
}

/// An Order-Status's inputs.
#[derive(Clone, Debug)]
pub struct OrderStatus {
    warehouse: u32,
    district: u32,
    who: Who,
}

impl Payment {
    /// Whether the customer is another warehouse's.
    pub fn is_remote(&self) -> bool {
        self.customer_warehouse != self.warehouse
    }

    /// Whether the customer is looked up by last name.
    pub fn is_by_name(&self) -> bool {
        matches!(self.who, Who::Name(_))
    }
}

impl Tpcc {
    /// Six of ten customers are known by name.
    fn draw_who(&self, random: &mut Random) -> Who {
        let customers = self.options.scale.customers;
        match random.random_range(0..100) {
            0..60 => Who::Name(last_name(self.constants.last_name(most_names(customers), random))),
            _ => Who::Number(self.constants.customer(customers, random)),
        }
    }

    pub(super) fn draw_payment(&self, random: &mut Random) -> Payment {
        let warehouse = random.random_range(1..=self.options.scale.warehouses);
        let district = random.random_range(1..=DISTRICTS);
        let (customer_warehouse, customer_district) = match random.random_range(0..100) {
            0..85 => (warehouse, district),
            _ => (self.other_warehouse(warehouse, random), random.random_range(1..=DISTRICTS)),
        };
        Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            who: self.draw_who(random),
            cents: random.random_range(100..=500_000),
        }
    }

    pub(super) fn draw_order_status(&self, random: &mut Random) -> OrderStatus {
        OrderStatus {
            warehouse: random.random_range(1..=self.options.scale.warehouses),
            district: random.random_range(1..=DISTRICTS),
            who: self.draw_who(random),
        }
    }

    /// The customer's number: of those with one last name, the middle one by first name.
    async fn find(&self, conn: &mut Conn, w: u32, d: u32, who: &Who) -> Result<Option<u32>, Error> {
        let name = match who {
            Who::Number(number) => return Ok(Some(*number)),
            Who::Name(name) => name,
        };
        let found: Vec<u32> = all(
            conn,
            "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
            (w, d, name),
        )
        .await?;
        Ok(found.get(found.len().saturating_sub(1) / 2).copied())
    }

    pub(super) async fn payment(&self, conn: &mut Conn, plan: &Payment) -> Result<Ending, Error> {
        let Payment {
            warehouse: w,
            district: d,
            customer_warehouse,
            customer_district,
            who,
            cents,
        } = plan;
        let amount = money(*cents);
        conn.exec_drop(
            "UPDATE warehouse SET w_ytd = w_ytd + CAST(? AS DECIMAL(12,2)) WHERE w_id = ?",
            (&amount, w),
        )
        .await?;
        let (warehouse, ..): (String, String, String, String, String, String) = one(
            conn,
            "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
            (w,),
        )
        .await?;
        conn.exec_drop(
            "UPDATE district SET d_ytd = d_ytd + CAST(? AS DECIMAL(12,2)) WHERE d_w_id = ? AND d_id = ?",
            (&amount, w, d),
        )
        .await?;
        let (district, ..): (String, String, String, String, String, String) = one(
            conn,
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ? AND d_id = ?",
            (w, d),
        )
        .await?;
        let (cw, cd) = (*customer_warehouse, *customer_district);
        // No customer of that name, in tables smaller than the standard's: nothing to pay.
        let Some(c) = self.find(conn, cw, cd, who).await? else { return Ok(Ending::RolledBack) };
        self.pay(conn, [cw, cd, c], [*w, *d], &amount).await?;
        let data = format!("{warehouse}    {district}");
        let values: Vec<Value> =
            vec![c.into(), cd.into(), cw.into(), d.into(), w.into(), amount.into(), data.into()];
        conn.exec_drop(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
             VALUES (?, ?, ?, ?, ?, NOW(), ?, ?)",
            values,
        )
        .await?;
        Ok(Ending::Done)
    }

    /// Changes the customer's row; bad credit also keeps a trail in its data.
    async fn pay(
        &self,
        conn: &mut Conn,
        [w, d, c]: [u32; 3],
        [at_w, at_d]: [u32; 2],
        amount: &str,
    ) -> Result<(), Error> {
        let query = format!(
            "SELECT c_credit, c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?{}",
            self.locking()
        );
        let (credit, old): (String, String) = one(conn, &query, (w, d, c)).await?;
        let change = "c_balance = c_balance - CAST(? AS DECIMAL(12,2)), \
                      c_ytd_payment = c_ytd_payment + CAST(? AS DECIMAL(12,2)), c_payment_cnt = c_payment_cnt + 1";
        let of = "WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        if credit == "BC" {
            let trail = format!("{c} {d} {w} {at_d} {at_w} {amount}|{old}");
            let data: String = trail.chars().take(500).collect();
            let text = format!("UPDATE customer SET {change}, c_data = ? {of}");
            conn.exec_drop(text, (amount, amount, data, w, d, c)).await
        } else {
            conn.exec_drop(format!("UPDATE customer SET {change} {of}"), (amount, amount, w, d, c))
                .await
        }
    }

    pub(super) async fn order_status(
        &self,
        conn: &mut Conn,
        plan: &OrderStatus,
    ) -> Result<Ending, Error> {
        let OrderStatus { warehouse: w, district: d, who } = plan;
        let Some(c) = self.find(conn, *w, *d, who).await? else { return Ok(Ending::Done) };
        let _: (String, String, String, String) = one(
            conn,
            "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (w, d, c),
        )
        .await?;
        let last: Option<(u32, Option<u32>)> = first(
            conn,
            "SELECT o_id, o_carrier_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? \
             ORDER BY o_id DESC LIMIT 1",
            (w, d, c),
        )
        .await?;
        let Some((order, _)) = last else { return Ok(Ending::Done) };
        conn.exec_drop(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            (w, d, order),
        )
        .await?;
        Ok(Ending::Done)
    }
}
