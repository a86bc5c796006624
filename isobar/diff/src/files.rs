//! Files as one side: every request is one pass, so that memory does not grow with them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::bisect::Digest;
use crate::compare::{Row, Values};
use crate::digest::row_digest;
use crate::error::{Error, Result};
use crate::location::Format;
use crate::range::{Key, Range};
use crate::rows::CsvForm;
use crate::schema::{Column, Plan, Table};
use crate::throttle::Throttle;
use crate::{csvfile, parquetfile};

/// Rows between two looks at the throttle.
const STRIDE: u64 = 8192;

/// Some files of one table.
pub struct FileTable {
    /// Files.
    pub files: Vec<PathBuf>,
    /// Kind.
    pub format: Format,
    /// Form, of CSV.
    pub csv: CsvForm,
    /// Columns of the file by the plan's places: their names.
    pub names: Vec<String>,
    /// Columns, rules and key.
    pub plan: Arc<Plan>,
    /// Shared by both sides.
    pub throttle: Arc<Throttle>,
}

/// What the files are made of, by their first; each other must have the same columns.
pub fn describe(
    label: &str,
    files: &[PathBuf],
    format: Format,
    csv: &CsvForm,
    ignored: &[String],
) -> Result<Table> {
    let mut columns: Option<Vec<Column>> = None;
    for file in files {
        let mut found = match format {
            Format::Parquet => parquetfile::columns(file, ignored)?,
            Format::Csv => csvfile::columns(file, csv)?,
        };
        found.retain(|column| !ignored.iter().any(|name| name.eq_ignore_ascii_case(&column.name)));
        match &columns {
            None => columns = Some(found),
            Some(first) => alike(file, first, &found)?,
        }
    }
    Ok(Table { name: label.to_owned(), columns: columns.unwrap_or_default(), key: Vec::new() })
}

fn alike(file: &std::path::Path, first: &[Column], found: &[Column]) -> Result<()> {
    let fail = |cause: String| Error::File { file: file.to_owned(), place: String::new(), cause };
    for column in first {
        match found.iter().find(|other| other.name.eq_ignore_ascii_case(&column.name)) {
            None => {
                return Err(fail(format!(
                    "column {} is missing, which the first file has; name only files of one table",
                    column.name
                )));
            }
            Some(other) if other.class != column.class => {
                return Err(fail(format!(
                    "column {} is {} here and {} in the first file; write it alike",
                    column.name, other.type_name, column.type_name
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl FileTable {
    /// Digests of ranges, in their order.
    pub async fn digests(self: &Arc<Self>, ranges: Vec<Range>) -> Result<Vec<Digest>> {
        let rules = self.plan.rules();
        let empty = vec![Digest::default(); ranges.len()];
        self.pass(ranges, empty, move |digest, _, values| {
            digest.add(Digest { rows: 1, sum: row_digest(values, &rules) });
        })
        .await
    }

    /// One key in about so many, of each range.
    pub async fn sample(self: &Arc<Self>, wanted: Vec<(Range, u64)>) -> Result<Vec<Vec<Key>>> {
        let every: Vec<u64> = wanted.iter().map(|(_, every)| *every).collect();
        let ranges: Vec<Range> = wanted.into_iter().map(|(range, _)| range).collect();
        let places = self.plan.key.clone();
        let rules = self.plan.rules();
        let empty: Vec<(u64, Vec<Key>)> =
            every.into_iter().map(|every| (every.max(1), Vec::new())).collect();
        let found = self.pass(ranges, empty, move |(every, keys), key, values| {
            let of = |from: &[Option<String>]| {
                places.iter().map(|at| from.get(*at).cloned().flatten()).collect::<Vec<_>>()
            };
            let rules: Vec<_> = places.iter().filter_map(|at| rules.get(*at).copied()).collect();
            if row_digest(&of(values), &rules).is_multiple_of(*every) {
                keys.push(key.clone());
            }
        });
        Ok(found.await?.into_iter().map(|(_, keys)| keys).collect())
    }

    /// Rows of ranges.
    pub async fn rows(self: &Arc<Self>, ranges: Vec<Range>) -> Result<Vec<Vec<Row>>> {
        let empty = vec![Vec::new(); ranges.len()];
        self.pass(ranges, empty, |rows, key, values| {
            rows.push(Row { key: key.clone(), values: values.clone() });
        })
        .await
    }

    /// One pass over all files, off the threads that wait for servers.
    async fn pass<T: Send + 'static>(
        self: &Arc<Self>,
        ranges: Vec<Range>,
        mut found: Vec<T>,
        mut take: impl FnMut(&mut T, &Key, &Values) + Send + 'static,
    ) -> Result<Vec<T>> {
        let this = Arc::clone(self);
        let work = move || {
            // Ranges do not overlap, so their upper ends order them.
            let mut order: Vec<usize> = (0..ranges.len()).collect();
            let high = |at: &usize| ranges.get(*at).and_then(|range| range.high.clone());
            order.sort_by_key(|at| (high(at).is_none(), high(at)));
            let sorted: Vec<Range> =
                order.iter().filter_map(|at| ranges.get(*at).cloned()).collect();
            this.scan(&mut |key, values| {
                let at = crate::range::find(&sorted, key).and_then(|at| order.get(at));
                if let Some(slot) = at.and_then(|at| found.get_mut(*at)) {
                    take(slot, key, values);
                }
            })?;
            Ok(found)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
            let file = self.files.first().cloned().unwrap_or_default();
            Err(Error::File {
                file,
                place: String::new(),
                cause: format!("reading it failed: {error}"),
            })
        })
    }

    /// Every row of every file.
    fn scan(&self, take: &mut dyn FnMut(&Key, &Values)) -> Result<()> {
        let mut count = 0;
        for file in &self.files {
            let mut row = |values: Values, place: &dyn Fn() -> String| {
                let Some(key) = self.plan.key_of(&values) else {
                    return Err(Error::File {
                        file: file.clone(),
                        place: place(),
                        cause: "the row's key has a NULL or a value of another type; mend the file, or match rows by other columns with --key".into(),
                    });
                };
                take(&key, &values);
                count += 1;
                if count % STRIDE == 0 {
                    std::thread::sleep(self.throttle.due(STRIDE));
                }
                Ok(())
            };
            match self.format {
                Format::Parquet => parquetfile::scan(file, &self.names, &mut row)?,
                Format::Csv => {
                    let classes: Vec<_> = self.plan.rules().iter().map(|rule| rule.class).collect();
                    csvfile::scan(file, &self.csv, &self.names, &classes, &mut row)?;
                }
            }
        }
        Ok(())
    }
}
