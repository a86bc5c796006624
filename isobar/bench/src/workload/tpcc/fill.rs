//! TPC-C's first rows (clause 4.3.3).
//!
//! An order and its lines are loaded as different parts, so what both must know (how many lines an
//! order has, who ordered) is computed from the order's number, not drawn.

use std::fmt::Write as _;
use std::sync::Arc;

use rand::Rng;

use super::draw::{Constants, data, last_name, most_names, zip};
use super::{Scale, money};
use crate::random::{Random, letters};
use crate::workload::load::{Fill, Part};

/// When everything that was there first happened.
const SINCE: &str = "2026-01-01 00:00:00";
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

/// What to load, in parts of up to a warehouse.
pub fn parts(scale: Scale, constants: &Constants) -> Vec<Part> {
    let mut parts = vec![
        part("item", 1, scale.items, Arc::new(item)),
        part(
            "warehouse",
            1,
            scale.warehouses,
            Arc::new(move |row, random, out| warehouse(scale, row, random, out)),
        ),
    ];
    let constants = *constants;
    for w in 1..=scale.warehouses {
        let fill: Fill = Arc::new(move |d, random, out| district(scale, w, d, random, out));
        parts.push(part("district", 1, DISTRICTS, fill));
        let fill: Fill = Arc::new(move |i, random, out| stock(w, i, random, out));
        parts.push(part("stock", 1, scale.items, fill));
        for d in 1..=DISTRICTS {
            parts.extend(of_district(scale, constants, w, d));
        }
    }
    parts
}

fn of_district(scale: Scale, constants: Constants, w: u32, d: u32) -> Vec<Part> {
    let first_new = scale.first_new_order();
    let customers: Fill =
        Arc::new(move |c, random, out| customer(scale, &constants, [w, d], c, random, out));
    let history: Fill = Arc::new(move |c, random, out| {
        let _ = write!(out, "({c},{d},{w},{d},{w},'{SINCE}',10.00,'{}')", letters(random, 12, 24));
    });
    let orders: Fill = Arc::new(move |o, random, out| {
        let carrier = match o < u64::from(first_new) {
            true => random.random_range(1..=10).to_string(),
            false => "NULL".to_owned(),
        };
        let (customer, lines) = (customer_of(scale, [w, d], o), lines_of([w, d], o));
        let _ = write!(out, "({o},{d},{w},{customer},'{SINCE}',{carrier},{lines},1)");
    });
    let news: Fill = Arc::new(move |o, _, out| {
        let _ = write!(out, "({o},{d},{w})");
    });
    // A part's rows are numbered from the first line of the first order on.
    let ends: Arc<Vec<u64>> = Arc::new(
        (1..=u64::from(scale.customers))
            .scan(0, |sum, o| {
                *sum += lines_of([w, d], o);
                Some(*sum)
            })
            .collect(),
    );
    let lines = ends.last().copied().unwrap_or(0);
    let fill: Fill = Arc::new(move |row, random, out| {
        let before = ends.partition_point(|end| *end <= row);
        let start = if before == 0 { 0 } else { ends[before - 1] };
        line(scale, [w, d], before as u64 + 1, row - start + 1, random, out);
    });
    vec![
        part("customer", 1, scale.customers, customers),
        part(
            "history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)",
            1,
            scale.customers,
            history,
        ),
        part("orders", 1, scale.customers, orders),
        part("new_order", first_new, scale.customers + 1 - first_new, news),
        Part { table: "order_line".into(), first: 0, rows: lines, fill },
    ]
}

fn part(table: &str, first: u32, rows: u32, fill: Fill) -> Part {
    Part { table: table.to_owned(), first: first.into(), rows: rows.into(), fill }
}

/// Well mixed bits of an order.
fn mixed([w, d]: [u32; 2], order: u64) -> u64 {
    let mut x = (u64::from(w) << 40) ^ (u64::from(d) << 32) ^ order;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Five to fifteen lines.
fn lines_of(district: [u32; 2], order: u64) -> u64 {
    5 + mixed(district, order) % 11
}

/// Each customer has one of the first orders, in mixed order.
fn customer_of(scale: Scale, [w, d]: [u32; 2], order: u64) -> u64 {
    let customers = u64::from(scale.customers);
    // A step without a common factor visits everyone once.
    let mut step = customers * 5 / 8 + 1;
    while gcd(step, customers) != 1 {
        step += 1;
    }
    (order * step + mixed([w, d], 0)) % customers + 1
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn item(row: u64, random: &mut Random, out: &mut String) {
    let (image, price) = (random.random_range(1..=10_000), random.random_range(100..=10_000));
    let name = letters(random, 14, 24);
    let _ = write!(out, "({row},{image},'{name}',{},'{}')", money(price), data(random));
}

/// Name, two streets, city, state, zip and tax, as warehouses and districts have them.
fn place(random: &mut Random) -> String {
    let mut part = |least, most| letters(random, least, most);
    let (name, one, two) = (part(6, 10), part(10, 20), part(10, 20));
    let (city, state) = (part(10, 20), part(2, 2));
    let (zip, tax) = (zip(random), random.random_range(0..=2_000));
    format!("'{name}','{one}','{two}','{city}','{state}','{zip}',0.{tax:04}")
}

fn warehouse(scale: Scale, w: u64, random: &mut Random, out: &mut String) {
    let paid = money(i64::from(scale.customers) * i64::from(DISTRICTS) * 1_000);
    let _ = write!(out, "({w},{},{paid})", place(random));
}

fn district(scale: Scale, w: u32, d: u64, random: &mut Random, out: &mut String) {
    let paid = money(i64::from(scale.customers) * 1_000);
    let _ = write!(out, "({d},{w},{},{paid},{})", place(random), scale.customers + 1);
}

fn stock(w: u32, i: u64, random: &mut Random, out: &mut String) {
    let _ = write!(out, "({i},{w},{}", random.random_range(10..=100));
    for _ in 0..DISTRICTS {
        let _ = write!(out, ",'{}'", letters(random, 24, 24));
    }
    let _ = write!(out, ",0,0,0,'{}')", data(random));
}

fn customer(
    scale: Scale,
    constants: &Constants,
    [w, d]: [u32; 2],
    c: u64,
    random: &mut Random,
    out: &mut String,
) {
    let most = most_names(scale.customers);
    let name = match u32::try_from(c - 1) {
        Ok(number) if number <= most => number,
        _ => constants.last_name_loaded(most, random),
    };
    let first = letters(random, 8, 16);
    let mut part = |least, most| letters(random, least, most);
    let (one, two, city, state) = (part(10, 20), part(10, 20), part(10, 20), part(2, 2));
    let phone: String = (0..16).map(|_| char::from(b'0' + random.random_range(0..10_u8))).collect();
    let credit = if random.random_range(0..10) == 0 { "BC" } else { "GC" };
    let discount = random.random_range(0..=5_000);
    let _ = write!(
        out,
        "({c},{d},{w},'{first}','OE','{}','{one}','{two}','{city}','{state}','{}','{phone}','{SINCE}','{credit}',\
         50000.00,0.{discount:04},-10.00,10.00,1,0,'{}')",
        last_name(name),
        zip(random),
        letters(random, 300, 500),
    );
}

fn line(
    scale: Scale,
    [w, d]: [u32; 2],
    order: u64,
    number: u64,
    random: &mut Random,
    out: &mut String,
) {
    let item = random.random_range(1..=scale.items);
    let info = letters(random, 24, 24);
    let (delivered, amount) = match order < u64::from(scale.first_new_order()) {
        true => (format!("'{SINCE}'"), 0),
        false => ("NULL".to_owned(), random.random_range(1..=999_999)),
    };
    let _ = write!(
        out,
        "({order},{d},{w},{number},{item},{w},{delivered},5,{},'{info}')",
        money(amount)
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::stream;

    #[test]
    fn the_first_rows_are_as_many_as_the_standard_says() {
        let rows = |scale| {
            let parts = parts(scale, &Constants::new(1));
            let of = |table: &str| -> u64 {
                let of = parts.iter().filter(|part| part.table.split(' ').next() == Some(table));
                of.map(|part| part.rows).sum()
            };
            ["item", "warehouse", "district", "stock", "customer", "history", "orders", "new_order"]
                .map(of)
        };
        assert_eq!(
            rows(Scale::new(2, 1.0)),
            [100_000, 2, 20, 200_000, 60_000, 60_000, 60_000, 18_000]
        );
        assert_eq!(rows(Scale::new(1, 0.01)), [1_000, 1, 10, 1_000, 300, 300, 300, 90]);
    }

    #[test]
    fn every_customer_has_one_of_the_first_orders() {
        for fraction in [1.0, 0.01, 0.037] {
            let scale = Scale::new(1, fraction);
            let seen: BTreeSet<u64> =
                (1..=u64::from(scale.customers)).map(|o| customer_of(scale, [1, 2], o)).collect();
            assert_eq!(seen.len(), scale.customers as usize);
            assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&u64::from(scale.customers))));
        }
    }

    #[test]
    fn lines_are_numbered_within_their_orders() {
        let scale = Scale::new(1, 0.01);
        let parts = of_district(scale, Constants::new(1), 1, 1);
        let lines = &parts[4];
        let mut random = stream(1, 1);
        let mut row = 0;
        for order in 1..=u64::from(scale.customers) {
            for number in 1..=lines_of([1, 1], order) {
                let mut text = String::new();
                (lines.fill)(row, &mut random, &mut text);
                assert!(text.starts_with(&format!("({order},1,1,{number},")), "{text}");
                row += 1;
            }
        }
        assert_eq!(row, lines.rows);
    }
}
