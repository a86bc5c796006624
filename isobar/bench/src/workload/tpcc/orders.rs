//! New-Order, Delivery and Stock-Level (clauses 2.4, 2.7 and 2.8).

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};
use rand::Rng;

use super::fill::DISTRICTS;
use super::{Tpcc, all, cents, first, money, one};
use crate::latency::Ending;
use crate::random::Random;

/// One item of an order.
#[derive(Clone, Copy, Debug)]
struct Line {
    item: u32,
    supplier: u32,
    quantity: u32,
}

/// A New-Order's inputs.
#[derive(Clone, Debug)]
pub struct NewOrder {
    warehouse: u32,
    district: u32,
    customer: u32,
    lines: Vec<Line>,
}

/// A Delivery's inputs.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    warehouse: u32,
    carrier: u32,
}

/// A Stock-Level's inputs.
#[derive(Clone, Copy, Debug)]
pub struct StockLevel {
    warehouse: u32,
    district: u32,
    threshold: u32,
}

impl NewOrder {
    /// Whether it asks for an item that does not exist, and so will be rolled back.
    pub fn has_unused_item(&self, items: u32) -> bool {
        self.lines.iter().any(|line| line.item > items)
    }
}

/// What of an item and its stock is needed to sell it.
struct Sale {
    price: i64,
    quantity: i64,
    info: String,
}

impl Tpcc {
    /// Draws a New-Order: one in a hundred names an unused item last.
    pub(super) fn draw_new_order(&self, random: &mut Random) -> NewOrder {
        let scale = self.options.scale;
        let warehouse = random.random_range(1..=scale.warehouses);
        let count = random.random_range(5..=15);
        let unused = random.random_range(0..100) == 0;
        let lines = (1..=count)
            .map(|number| Line {
                item: match unused && number == count {
                    true => scale.items + 1,
                    false => self.constants.item(scale.items, random),
                },
                supplier: match random.random_range(0..100) {
                    0 => self.other_warehouse(warehouse, random),
                    _ => warehouse,
                },
                quantity: random.random_range(1..=10),
            })
            .collect();
        NewOrder {
            warehouse,
            district: random.random_range(1..=DISTRICTS),
            customer: self.constants.customer(scale.customers, random),
            lines,
        }
    }

    /// Another warehouse, if there is one.
    pub(super) fn other_warehouse(&self, than: u32, random: &mut Random) -> u32 {
        let most = self.options.scale.warehouses;
        if most == 1 {
            return than;
        }
        let drawn = random.random_range(1..most);
        drawn + u32::from(drawn >= than)
    }

    pub(super) fn draw_delivery(&self, random: &mut Random) -> Delivery {
        Delivery {
            warehouse: random.random_range(1..=self.options.scale.warehouses),
            carrier: random.random_range(1..=10),
        }
    }

    pub(super) fn draw_stock_level(&self, random: &mut Random) -> StockLevel {
        StockLevel {
            warehouse: random.random_range(1..=self.options.scale.warehouses),
            district: random.random_range(1..=DISTRICTS),
            threshold: random.random_range(10..=20),
        }
    }

    pub(super) async fn new_order(
        &self,
        conn: &mut Conn,
        plan: &NewOrder,
    ) -> Result<Ending, Error> {
        let NewOrder { warehouse: w, district: d, customer: c, lines } = plan;
        let _: String = one(conn, "SELECT w_tax FROM warehouse WHERE w_id = ?", (w,)).await?;
        let next = format!(
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ?{}",
            self.locking()
        );
        let (order, _): (u32, String) = one(conn, &next, (w, d)).await?;
        conn.exec_drop(
            "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?",
            (order + 1, w, d),
        )
        .await?;
        let _: (String, String, String) = one(
            conn,
            "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (w, d, c),
        )
        .await?;
        let local = lines.iter().all(|line| line.supplier == *w);
        conn.exec_drop(
            "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
             VALUES (?, ?, ?, ?, NOW(), NULL, ?, ?)",
            (order, d, w, c, lines.len(), u32::from(local)),
        )
        .await?;
        conn.exec_drop(
            "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)",
            (order, d, w),
        )
        .await?;
        for (number, line) in (1_u32..).zip(lines) {
            let Some(sale) = self.sell(conn, plan, line).await? else {
                return Ok(Ending::RolledBack);
            };
            let amount = money(sale.price * i64::from(line.quantity));
            let values: Vec<Value> = vec![
                order.into(),
                d.into(),
                w.into(),
                number.into(),
                line.item.into(),
                line.supplier.into(),
                line.quantity.into(),
                amount.into(),
                sale.info.into(),
            ];
            conn.exec_drop(
                "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, \
                 ol_delivery_d, ol_quantity, ol_amount, ol_dist_info) VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
                values,
            )
            .await?;
        }
        Ok(Ending::Done)
    }

    /// Takes an item from its stock; none if there is no such item.
    async fn sell(
        &self,
        conn: &mut Conn,
        order: &NewOrder,
        line: &Line,
    ) -> Result<Option<Sale>, Error> {
        let item: Option<(String, String, String)> =
            first(conn, "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?", (line.item,))
                .await?;
        let Some((price, _, _)) = item else { return Ok(None) };
        let query = format!(
            "SELECT s_quantity, s_dist_{:02}, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ?{}",
            order.district,
            self.locking()
        );
        let (left, info, _): (i64, String, String) =
            one(conn, &query, (line.supplier, line.item)).await?;
        let wanted = i64::from(line.quantity);
        // Clause 2.4.2.2: what runs low is filled up by 91.
        let quantity = if left - wanted >= 10 { left - wanted } else { left - wanted + 91 };
        let sale = Sale { price: cents(&price), quantity, info };
        conn.exec_drop(
            "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
            (
                sale.quantity,
                line.quantity,
                u32::from(line.supplier != order.warehouse),
                line.supplier,
                line.item,
            ),
        )
        .await?;
        Ok(Some(sale))
    }

    pub(super) async fn delivery(&self, conn: &mut Conn, plan: &Delivery) -> Result<Ending, Error> {
        let w = plan.warehouse;
        for d in 1..=DISTRICTS {
            let oldest = format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1{}",
                self.locking()
            );
            // A district may have nothing to deliver (clause 2.7.4.2).
            let Some(order) = first::<u32>(conn, &oldest, (w, d)).await? else { continue };
            conn.exec_drop(
                "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
                (w, d, order),
            )
            .await?;
            // This locks too: the order may be newer than the transaction's snapshot, in which
            // case a plain read would not find it.
            let ordered = format!(
                "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?{}",
                self.locking()
            );
            let customer: u32 = one(conn, &ordered, (w, d, order)).await?;
            conn.exec_drop(
                "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
                (plan.carrier, w, d, order),
            )
            .await?;
            conn.exec_drop(
                "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
                (w, d, order),
            )
            .await?;
            let amount: String = one(
                conn,
                "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
                (w, d, order),
            )
            .await?;
            conn.exec_drop(
                "UPDATE customer SET c_balance = c_balance + CAST(? AS DECIMAL(12,2)), \
                 c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
                (amount, w, d, customer),
            )
            .await?;
        }
        Ok(Ending::Done)
    }

    pub(super) async fn stock_level(
        &self,
        conn: &mut Conn,
        plan: &StockLevel,
    ) -> Result<Ending, Error> {
        let StockLevel { warehouse: w, district: d, threshold } = plan;
        let next: u32 =
            one(conn, "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", (w, d))
                .await?;
        let items: Vec<u32> = all(
            conn,
            "SELECT DISTINCT ol_i_id FROM order_line \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ?",
            (w, d, next, next.saturating_sub(20)),
        )
        .await?;
        if items.is_empty() {
            return Ok(Ending::Done);
        }
        // Two steps, as by an index join. The statement is not prepared: it has as many forms as
        // there are numbers of items.
        let list: Vec<String> = items.iter().map(u32::to_string).collect();
        let low = format!(
            "SELECT COUNT(*) FROM stock WHERE s_w_id = {w} AND s_i_id IN ({}) AND s_quantity < {threshold}",
            list.join(",")
        );
        let _: Option<mysql_async::Row> = conn.query_first(low).await?;
        Ok(Ending::Done)
    }
}
