//! The report of a TPC-H run: JSON, and a table to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::measure::{geometric_mean, median, table};
use crate::stage::Setting;

/// Who is compared with whom.
const PAIRS: [(&str, &str); 4] = [
    ("columns", "duckdb"),
    ("columns", "duckdb-parquet"),
    ("columns", "datafusion-parquet"),
    ("spark-connector", "spark-parquet"),
];

/// A query's times.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueryTimes {
    /// 1 to 22.
    pub number: usize,
    /// Seconds of each repetition, by reader.
    pub seconds: BTreeMap<String, Vec<f64>>,
    /// Their median, by reader.
    pub median: BTreeMap<String, f64>,
}

/// How quickly tables were filled.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Load {
    /// Rows of all tables.
    pub import_rows: u64,
    /// Seconds of `isobar import`, by table, the start of the program included.
    pub import_seconds: BTreeMap<String, f64>,
    /// All rows by all seconds.
    pub import_rows_per_second: f64,
    /// The table that was loaded by LOAD DATA.
    pub load_data_table: Option<String>,
    /// Its rows.
    pub load_data_rows: Option<u64>,
    /// How long that took.
    pub load_data_seconds: Option<f64>,
    /// Their ratio.
    pub load_data_rows_per_second: Option<f64>,
}

/// Bytes that the eight tables take.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bytes {
    /// Of one of the row nodes, each of which has everything: store and log.
    pub row_node: Option<u64>,
    /// Of the columnar nodes: segments, key indexes and log.
    pub columnar_nodes: Option<u64>,
    /// Of segments and delta, as placement knows them.
    pub columns: Option<u64>,
    /// Of the same rows as Parquet files, compressed with zstd.
    pub parquet_zstd: u64,
}

/// One reader against another.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// Whose seconds are divided …
    pub of: String,
    /// … by whose.
    pub by: String,
    /// Of the ratios of the queries that both have answered.
    pub geometric_mean: f64,
    /// How many these are.
    pub queries: usize,
}

/// All that is reported.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// When, where and how.
    #[serde(flatten)]
    pub setting: Setting,
    /// TPC-H's scale factor.
    pub scale: f64,
    /// Timed runs of each query.
    pub repetitions: usize,
    /// Readers and their versions.
    pub readers: BTreeMap<String, String>,
    /// Peers that are not here, and why.
    pub absent: BTreeMap<String, String>,
    /// Queries that a peer could not run, and why.
    pub failed: BTreeMap<String, String>,
    /// Whose answers all others equal.
    pub checked_against: Option<String>,
    /// Filling the tables, unless they were there.
    pub load: Option<Load>,
    /// Bytes on disk.
    pub bytes: Bytes,
    /// By query.
    pub queries: Vec<QueryTimes>,
    /// Seconds of all queries, by reader that has answered all of them.
    pub sum_seconds: BTreeMap<String, f64>,
    /// Geometric means.
    pub ratios: Vec<Ratio>,
}

impl Report {
    /// Works out medians, sums and ratios.
    pub fn finish(&mut self) {
        for query in &mut self.queries {
            let medians =
                query.seconds.iter().filter_map(|(name, all)| Some((name.clone(), median(all)?)));
            query.median = medians.collect();
        }
        for reader in self.readers.keys() {
            let times: Vec<f64> =
                self.queries.iter().filter_map(|query| query.median.get(reader).copied()).collect();
            if times.len() == self.queries.len() {
                self.sum_seconds.insert(reader.clone(), times.iter().sum());
            }
        }
        for (of, by) in PAIRS {
            let ratios: Vec<f64> =
                self.queries.iter().filter_map(|query| ratio(query, of, by)).collect();
            if let Some(geometric_mean) = geometric_mean(&ratios) {
                let (of, by) = (of.to_owned(), by.to_owned());
                self.ratios.push(Ratio { of, by, geometric_mean, queries: ratios.len() });
            }
        }
    }

    /// To read.
    pub fn text(&self) -> String {
        let mut text = format!("\nTPC-H, scale {}: {}\n", self.scale, self.setting.pinning);
        if let Some(load) = &self.load {
            let _ = writeln!(
                text,
                "import      {:>12} rows, {:.0} rows/s (columns included)",
                load.import_rows, load.import_rows_per_second
            );
            if let (Some(table), Some(rows), Some(rate)) =
                (&load.load_data_table, load.load_data_rows, load.load_data_rows_per_second)
            {
                let _ = writeln!(text, "LOAD DATA   {rows:>12} rows of {table}, {rate:.0} rows/s");
            }
        }
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let known = |bytes: Option<u64>| bytes.map_or("not known here".to_owned(), mib);
        let _ = writeln!(
            text,
            "on disk     one row node {}; columnar nodes {}, of which columns {}; Parquet (zstd) {}",
            known(self.bytes.row_node),
            known(self.bytes.columnar_nodes),
            known(self.bytes.columns),
            mib(self.bytes.parquet_zstd)
        );
        match &self.checked_against {
            Some(who) => {
                let _ = writeln!(text, "answers     checked: all equal those of {who}");
            }
            None => text.push_str("answers     NOT CHECKED: no peer is here to compare with\n"),
        }
        let _ =
            writeln!(text, "\nHot milliseconds, median of {}, rows fetched:\n", self.repetitions);
        text + &self.times() + &self.notes()
    }

    fn times(&self) -> String {
        let readers: Vec<&String> = self.readers.keys().collect();
        let pairs: Vec<&Ratio> = self.ratios.iter().collect();
        let mut head = vec![String::new()];
        head.extend(readers.iter().map(|reader| (*reader).clone()));
        head.extend(pairs.iter().map(|pair| format!("{} ÷ {}", pair.of, pair.by)));
        let mut rows = Vec::new();
        let cell = |value: Option<f64>, unit: f64, digits: usize| {
            value.map_or("–".to_owned(), |value| format!("{:.digits$}", value * unit))
        };
        for query in &self.queries {
            let mut row = vec![format!("Q{}", query.number)];
            row.extend(readers.iter().map(|r| cell(query.median.get(*r).copied(), 1e3, 1)));
            row.extend(pairs.iter().map(|pair| cell(ratio(query, &pair.of, &pair.by), 1.0, 2)));
            rows.push(row);
        }
        let mut sums = vec!["sum".to_owned()];
        sums.extend(readers.iter().map(|r| cell(self.sum_seconds.get(*r).copied(), 1e3, 1)));
        sums.extend(pairs.iter().map(|pair| {
            let of = self.sum_seconds.get(&pair.of);
            cell(of.zip(self.sum_seconds.get(&pair.by)).map(|(a, b)| a / b), 1.0, 2)
        }));
        let mut means = vec!["geometric mean".to_owned()];
        means.extend(readers.iter().map(|_| String::new()));
        means.extend(pairs.iter().map(|pair| cell(Some(pair.geometric_mean), 1.0, 2)));
        rows.extend([sums, means]);
        table(&head, &rows)
    }

    fn notes(&self) -> String {
        let mut text = String::new();
        for (peer, why) in &self.absent {
            let _ = writeln!(text, "{peer} is absent: {why}");
        }
        for (what, why) in &self.failed {
            let _ = writeln!(text, "{what} has no time: {why}");
        }
        text
    }
}

fn ratio(query: &QueryTimes, of: &str, by: &str) -> Option<f64> {
    Some(query.median.get(of)? / query.median.get(by)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_and_of_queries_that_both_answered() {
        let query = |number, ours: [f64; 3], theirs: Option<f64>| {
            let mut seconds = BTreeMap::from([("columns".to_owned(), ours.to_vec())]);
            seconds.extend(theirs.map(|theirs| ("duckdb".to_owned(), vec![theirs])));
            QueryTimes { number, seconds, ..QueryTimes::default() }
        };
        let mut report = Report {
            readers: ["columns", "duckdb"].map(|name| (name.to_owned(), String::new())).into(),
            absent: [("spark-parquet".to_owned(), "pip install pyspark".to_owned())].into(),
            queries: vec![
                query(1, [9.0, 2.0, 1.0], Some(1.0)),
                query(2, [8.0, 8.0, 8.0], Some(1.0)),
                query(3, [5.0, 5.0, 5.0], None),
            ],
            ..Report::default()
        };
        report.finish();
        assert_eq!((report.ratios.len(), report.ratios[0].queries), (1, 2));
        assert!((report.ratios[0].geometric_mean - 4.0).abs() < 1e-9, "2 and 8");
        assert_eq!(report.sum_seconds, [("columns".to_owned(), 15.0)].into());
        let text = report.text();
        assert!(text.contains("NOT CHECKED") && text.contains("pip install pyspark"), "{text}");
        assert!(text.contains("geometric mean") && text.contains("4.00"), "{text}");
    }
}
